"""Tools for those who build Mainspring: what it depends on, under which licences. They are not part of the wheel."""
