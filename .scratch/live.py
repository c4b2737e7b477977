"""keeps a furnished live server with 65 jobs, 3 workers, failures"""
