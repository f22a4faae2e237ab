// Messages of a session, read a page at a time when somebody looks at them.

import { api } from "./api.js";

const PAGE = 100;
/** How far back pins are looked for. */
export const SEARCHED = 1000;

export class Messages {
  constructor(session) {
    this.session = session;
    this.pages = new Map();
    this.read = new Map();
  }

  /** The message at a position, from 1; undefined where there is none. */
  async at(position) {
    await this.page(Math.floor((position - 1) / PAGE));
    return this.read.get(position);
  }

  page(number) {
    if (!this.pages.has(number)) {
      const loading = api.messages(this.session, number * PAGE + 1, (number + 1) * PAGE).then(({ messages }) => {
        for (const message of messages) this.read.set(message.position, message);
      });
      this.pages.set(number, loading.catch((problem) => {
        this.pages.delete(number);
        throw problem;
      }));
    }
    return this.pages.get(number);
  }

  /** Reads the newest messages of a conversation of that length. */
  async newest(total) {
    const last = Math.floor((total - 1) / PAGE);
    const first = Math.max(0, Math.floor((total - SEARCHED) / PAGE));
    for (let number = last; number >= first && number >= 0; number -= 1) await this.page(number);
  }

  /** The position of a message that was read, or undefined. */
  positionOf(id) {
    for (const message of this.read.values()) if (message.id === id) return message.position;
    return undefined;
  }

  /** Those that somebody said something about, of those that were read, oldest first. */
  pinned() {
    return [...this.read.values()].filter((message) => message.preservation).sort((a, b) => a.position - b.position);
  }

  /** Says what is to become of a message. */
  async pin(message, preservation) {
    await api.pinMessage(this.session, message.id, preservation);
    message.preservation = preservation;
  }
}
