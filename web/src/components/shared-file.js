/** A file of the shared directory on a page: a link that downloads it, an image that is shown, and enlarged. */

import { Dialog } from "./dialog.js";
import { download, imageAddress, imageType, nameOf } from "../shared-files.js";
import { html, useEffect, useState } from "../view.js";

/** @param {{user: string, path: string, name?: string}} props */
export function SharedFile({ user, path, name = nameOf(path) }) {
  const [problem, setProblem] = useState("");
  const [address, setAddress] = useState("");
  const [large, setLarge] = useState(false);
  const image = html`<img src=${address} alt=${name} />`;
  const isImage = imageType(path) !== "";
  useEffect(() => {
    if (isImage) imageAddress(user, path).then(setAddress, (error) => setProblem(error.message));
  }, [user, path]);
  const get = () => download(user, path).catch((error) => setProblem(error.message));
  return html`<figure class="shared-file">
    ${address && html`<button type="button" class="plain" onClick=${() => setLarge(true)}>${image}</button>`}
    ${large && html`<${Dialog} title=${name} wide onClose=${() => setLarge(false)}>${image}<//>`}
    <figcaption>
      <button type="button" class="plain" onClick=${get}>${name}<span class="unseen"> (download)</span></button>
      ${problem && html`<span class="bad" role="alert">${problem}</span>`}
    </figcaption>
  </figure>`;
}
