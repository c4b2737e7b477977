// The phone's way around: four pages, and the rest behind "More".
import { Link } from "@tanstack/react-router";
import { Ellipsis } from "lucide-react";
import { useState } from "react";
import { Dialog } from "../ui/Dialog";
import styles from "./BottomBar.module.css";
import { usePlaces } from "./places";

const FIRST = ["/", "/jobs", "/runs", "/failures"];

export function BottomBar() {
  const places = usePlaces();
  const [more, setMore] = useState(false);
  return (
    <nav className={styles.bar} aria-label="Main pages">
      {places.filter((place) => FIRST.includes(place.to)).map((place) => (
        <Link key={place.to} to={place.to} className={styles.link} activeOptions={{ exact: place.to === "/", includeSearch: false }}>
          <place.icon size={18} aria-hidden="true" />
          {place.name}
        </Link>
      ))}
      <button type="button" className={styles.link} onClick={() => setMore(true)}>
        <Ellipsis size={18} aria-hidden="true" />
        More
      </button>
      {more ? (
        <Dialog title="Pages" onClose={() => setMore(false)}>
          <ul className={styles.more}>
            {places.filter((place) => !FIRST.includes(place.to)).map((place) => (
              <li key={place.to}>
                <Link to={place.to} onClick={() => setMore(false)}>
                  <place.icon size={18} aria-hidden="true" />
                  {place.name}
                </Link>
              </li>
            ))}
          </ul>
        </Dialog>
      ) : null}
    </nav>
  );
}
