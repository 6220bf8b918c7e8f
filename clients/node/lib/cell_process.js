'use strict';

const { notSupported } = require('./errors.js');
const { runCommand } = require('./guest.js');

/** A command in a session that has no processes, as those of the library in this process: a cell that starts one. It has
 * of `Process` what a SandboxSession needs. Such commands run one after the other, and their output is text. */
class CellProcess {
  #killed = new AbortController();
  #ended;

  constructor(session, command, { cwd, env, stdin, abortSignal, onOutput }) {
    if (stdin) {
      throw notSupported('a command has no standard input that stays open here: write a file and read that, or ask a server');
    }
    const killed = this.#killed.signal;
    this.#ended = runCommand(session, {
      command: ['/bin/sh', '-c', command], directory: cwd, env,
      abortSignal: abortSignal ? AbortSignal.any([abortSignal, killed]) : killed,
      onOutput: (stream, text) => onOutput(stream, Buffer.from(text)),
    }).catch((error) => {
      if (!killed.aborted || abortSignal?.aborted) throw error;
      return { exitCode: 137, message: null };
    });
    this.#ended.catch(() => {}); /* who waits is told */
  }

  wait() {
    return this.#ended;
  }

  /** There is but one signal: it is killed. */
  async signal() {
    this.#killed.abort();
    return true;
  }
}

module.exports = { CellProcess };
