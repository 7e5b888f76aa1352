/** Tells screen readers what has changed, one sentence at a time. */

/** @param {string} text */
export function announce(text) {
  const region = document.getElementById("announcements");
  if (region) region.textContent = text;
}
