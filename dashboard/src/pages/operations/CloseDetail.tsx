import { X } from "lucide-react";
import { Button } from "../../ui/Button";
import { useSetSearch } from "../../ui/Filters";

/** Takes the open thing out of the address. */
export function CloseDetail({ name }: { name: string }) {
  const set = useSetSearch();
  return <Button kind="quiet" icon={<X size={14} />} aria-label="Close the details" onClick={() => set({ [name]: undefined })} />;
}
