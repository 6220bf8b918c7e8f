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

function brokenOff(cause) {
  return new HutchError('the connection was broken off before the answer had come', { code: 'broken_off', cause });
}

/** What the server or its image does not have. */
function notSupported(message) {
  return new HutchError(message, { code: 'not_supported' });
}

module.exports = { HutchError, FunctionError, refusalOf, brokenOff, notSupported };
