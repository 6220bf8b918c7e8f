'use strict';

/** What goes wrong outside of the code that is run. How that code ended is told by its result, never by an error.
 *
 * `status` is HTTP's, 0 when no server has answered; `code` a word that does not change its meaning; `hint` what to do.
 * `retryAfter` has seconds where the server said so. */
class HutchError extends Error {
  constructor(message, { status = 0, code = 'client_error', hint = null, retryAfter = null, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'HutchError';
    this.status = status;
    this.code = code;
    this.hint = hint;
    this.retryAfter = retryAfter;
  }
}

/** A function has not returned. `result` has all of it: the exception, what it printed, the verdict. */
class FunctionError extends HutchError {
  constructor(result) {
    const { error, message, verdict } = result;
    super(error ? `${error.name}: ${error.value}` : message ?? `the function ended with '${verdict}'`,
          { code: 'function_error' });
    this.name = 'FunctionError';
    this.result = result;
  }
}

/** The error of an answer that is no success. @headers: by names in lower case. */
function refusalOf(status, headers, body) {
  const retry = /^\d+$/.test(headers['retry-after'] ?? '') ? Number(headers['retry-after']) : null;
  try {
    const { message, code, hint } = JSON.parse(body.toString()).error;
    return new HutchError(String(message), { status, code: String(code), hint: hint ?? null, retryAfter: retry });
  } catch {
    return new HutchError(`the server answered with status ${status}`, { status, code: '', retryAfter: retry });
  }
}

/* As the gateway has them. */
const LIBRARY_ERRORS = {
  invalid_request: { status: 400, hint: 'hutch.h and docs/clients.md say what is taken.' },
  not_found: { status: 404, hint: null },
  conflict: { status: 409, hint: 'The message says what stands in the way.' },
  queue_full: { status: 429, hint: 'Try again when something has ended.' },
  internal: { status: 500, hint: null },
  overloaded: { status: 503, hint: 'Try again when something has ended, or with higher limits of this process.' },
};

/** The error that a server would answer with, where the library in this process has said @error. @again: the code of
 * EAGAIN; @absent: of ENOENT. */
function libraryRefusal(error, { again = 'queue_full', absent = 'not_found' } = {}) {
  if (error instanceof HutchError) return error;
  const codes = { EAGAIN: again, ENOENT: absent, EMFILE: 'overloaded', ENFILE: 'overloaded', ENOMEM: 'overloaded',
                  EIO: 'internal' };
  const code = codes[error.code] ?? 'invalid_request';
  return new HutchError(error.message, { code, cause: error, ...LIBRARY_ERRORS[code] });
}

function brokenOff(cause) {
  return new HutchError('the connection was broken off before the answer had come', { code: 'broken_off', cause });
}

/** What the server or its image does not have. */
function notSupported(message) {
  return new HutchError(message, { code: 'not_supported' });
}

module.exports = { HutchError, FunctionError, refusalOf, libraryRefusal, brokenOff, notSupported };
