import { Link } from "@tanstack/react-router";
import { usePlaces } from "./places";
import styles from "./SideBar.module.css";

const GROUPS = ["Work", "Trouble", "System"] as const;

export function SideBar() {
  const places = usePlaces();
  return (
    <div className={styles.side}>
      <nav className={styles.bar} aria-label="Pages">
        <Link to="/" className={styles.brand} aria-label="Mainspring: overview">
          <img src={`${import.meta.env.BASE_URL}favicon.svg`} alt="" width={24} height={24} />
          <span>Mainspring</span>
        </Link>
        {GROUPS.map((group) => (
          <ul key={group} aria-label={group}>
            {places.filter((place) => place.group === group).map((place) => (
              <li key={place.to}>
                <Link to={place.to} className={styles.link} activeOptions={{ exact: place.to === "/", includeSearch: false }} title={place.name}>
                  <place.icon size={16} aria-hidden="true" />
                  <span>{place.name}</span>
                </Link>
              </li>
            ))}
          </ul>
        ))}
      </nav>
    </div>
  );
}
