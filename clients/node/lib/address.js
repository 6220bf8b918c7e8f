'use strict';

const path = require('node:path');

const FORMS = 'it can be unix:PATH, HOST:PORT or http://HOST:PORT';

function usualAddress() {
  if (process.env.HUTCH_SERVER) return process.env.HUTCH_SERVER;
  const runtime = process.env.XDG_RUNTIME_DIR;
  if (!runtime) {
    throw new TypeError('no address is given, and XDG_RUNTIME_DIR, below which hutch serve has its socket, is not set');
  }
  return `unix:${path.join(runtime, 'hutch', 'hutch.sock')}`;
}

/** "unix:PATH", "HOST:PORT" or "http://HOST:PORT" as options of http.request(). Without one it is $HUTCH_SERVER, else
 * the usual socket of `hutch serve`. */
function readAddress(text = usualAddress()) {
  if (text.startsWith('unix:')) return { text, options: { socketPath: text.slice('unix:'.length), host: 'localhost' } };
  let url;
  try {
    url = new URL(text.includes('://') ? text : `http://${text}`);
  } catch {
    throw new TypeError(`'${text}' is no address of a server: ${FORMS}`);
  }
  /* URL drops the port 80, which is the usual one of http. */
  const port = url.port || (/:80\/?$/.test(text) ? '80' : '');
  if (url.protocol !== 'http:' || !port || !['', '/'].includes(url.pathname) || url.search || url.username) {
    throw new TypeError(`'${text}' is no address of a server: ${FORMS}`);
  }
  return { text, options: { host: url.hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port) } };
}

module.exports = { readAddress };
