'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { pipeline } = require('node:stream/promises');

const { HutchError, notSupported } = require('./errors.js');

const MAX_NAMES = 100; /* of directories in one another */

/** A directory of this machine with the files of one session: those that go in, and those that have come out. The
 * latter have names that foreign code chose, and are written below it and nowhere else. */
class Workspace {
  #generated = new Set();
  #ever = new Set();
  #sent = new Map();

  constructor() {
    this.directory = fs.mkdtempSync(path.join(os.tmpdir(), 'hutch-workspace-'));
  }

  /** Absolute paths. */
  get generated() {
    return [...this.#generated].map((name) => path.join(this.directory, name));
  }

  get everGenerated() {
    return [...this.#ever].map((name) => path.join(this.directory, name));
  }

  /** The caller's own path, which may not leave the directory. */
  place(name) {
    const whole = path.resolve(this.directory, name);
    if (!whole.startsWith(this.directory + path.sep)) throw new TypeError(`'${name}' leaves the workspace`);
    return whole;
  }

  write(name, content) {
    const whole = this.place(name), own = toPosix(path.relative(this.directory, whole));
    this.#generated.delete(own);
    this.#ever.delete(own);
    fs.mkdirSync(path.dirname(whole), { recursive: true });
    fs.writeFileSync(whole, content);
  }

  list() {
    return filesBelow(this.directory).map((name) => path.join(this.directory, name));
  }

  /** Uploads what is new or other than what was uploaded or had before. */
  async send(session, abortSignal) {
    for (const name of filesBelow(this.directory)) {
      if (this.#ever.has(name)) continue;
      const { size, mtimeMs } = fs.statSync(path.join(this.directory, name));
      const state = `${size} ${mtimeMs}`;
      if (this.#sent.get(name) === state) continue;
      await session.upload(toPosix(name), fs.createReadStream(path.join(this.directory, name)), { abortSignal });
      this.#sent.set(name, state);
    }
  }

  /** The next session begins with none of them. */
  forgetSent() {
    this.#sent.clear();
    this.#generated.clear();
  }

  /** Downloads what a command has made or changed, as @files of its result tells it. */
  async fetch(session, files, abortSignal) {
    for (const { path: name } of files?.deleted ?? []) {
      this.#generated.delete(name);
      if (this.#isOurs(name)) fs.rmSync(path.join(this.directory, name), { recursive: true, force: true });
    }
    for (const entry of [...(files?.added ?? []), ...(files?.modified ?? [])]) {
      /* What is no regular file, or has a name that is no text, stays inside. */
      if (entry.type || entry.path_base64 || !this.#isOurs(entry.path)) continue;
      if (!(await this.#download(session, entry.path, abortSignal))) continue;
      if (this.#sent.has(entry.path)) {
        const { size, mtimeMs } = fs.statSync(path.join(this.directory, entry.path));
        this.#sent.set(entry.path, `${size} ${mtimeMs}`);
      } else {
        this.#generated.add(entry.path);
        this.#ever.add(entry.path);
      }
    }
  }

  #isOurs(name) {
    const names = name.split('/');
    return names.length <= MAX_NAMES && names.every((part) => !['', '.', '..'].includes(part));
  }

  async #download(session, name, abortSignal) {
    const whole = path.join(this.directory, name);
    let stream;
    try {
      stream = await session.downloadStream(name, { abortSignal });
    } catch (error) {
      /* It can have gone meanwhile: what a program has left running still works there. */
      if (error instanceof HutchError && error.status === 404) return false;
      throw error;
    }
    makeDirectories(this.directory, name);
    fs.rmSync(whole, { recursive: true, force: true });
    await pipeline(stream, fs.createWriteStream(whole, { flags: 'wx' }));
    return true;
  }

  remove(keepGenerated) {
    if (!keepGenerated || !this.#ever.size) {
      fs.rmSync(this.directory, { recursive: true, force: true });
      return;
    }
    for (const name of filesBelow(this.directory)) {
      if (!this.#ever.has(name)) fs.rmSync(path.join(this.directory, name), { force: true });
    }
  }
}

/** A file stands in the way where a program has replaced one by a directory. The workspace has no links: only this
 * class and the caller write there. */
function makeDirectories(directory, name) {
  let at = directory;
  for (const part of name.split('/').slice(0, -1)) {
    at = path.join(at, part);
    if (fs.lstatSync(at, { throwIfNoEntry: false })?.isDirectory() === false) fs.rmSync(at);
    fs.mkdirSync(at, { recursive: true });
  }
}

function toPosix(name) {
  return name.split(path.sep).join('/');
}

/** Regular files below @directory, relative to it. No link is followed. */
function filesBelow(directory) {
  const found = [];
  const walk = (below) => {
    for (const entry of fs.readdirSync(path.join(directory, below), { withFileTypes: true })) {
      const name = path.join(below, entry.name);
      if (entry.isDirectory()) walk(name);
      else if (entry.isFile()) found.push(name);
    }
  };
  walk('');
  return found;
}

/** Copies a directory or file of the caller's into @session, at @target below /mnt/data. */
async function copyIn(session, { type, source, target }, abortSignal) {
  if (type === 'file') {
    await session.upload(target, fs.createReadStream(source), { abortSignal });
    return [target];
  }
  if (type !== 'directory') throw notSupported(`a mount of type '${type}' cannot be had: 'directory' and 'file' can`);
  const names = filesBelow(source);
  for (const name of names) {
    const inside = path.posix.join(target, toPosix(name));
    await session.upload(inside, fs.createReadStream(path.join(source, name)), { abortSignal });
  }
  return names;
}

module.exports = { Workspace, copyIn };
