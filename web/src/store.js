/** A value that tells those who look when it changes. */

import { useEffect, useState } from "./view.js";

/** @template T */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.watchers = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const tell of [...this.watchers]) tell(value);
  }

  /**
   * @param {(value: T) => void} tell
   * @returns {() => void} ends it
   */
  watch(tell) {
    this.watchers.add(tell);
    return () => void this.watchers.delete(tell);
  }
}

/**
 * The value of a store, in a component that is drawn again when it changes.
 *
 * @template T
 * @param {Store<T>} store
 * @returns {T}
 */
export function useStore(store) {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(store.value);
    return store.watch((each) => setValue(each));
  }, [store]);
  return value;
}
