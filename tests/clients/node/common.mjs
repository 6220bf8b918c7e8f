// What the tests of the Node package share: the server that tests/e2e/test_node_client.py has started for them, or the
// library in this process, for which tests/e2e/test_node_library.py has built the addon.
import { Client } from 'hutch';

/** On the usual socket, below $XDG_RUNTIME_DIR. */
export const client = process.env.HUTCH_TEST_IN_PROCESS ? Client.inProcess({ image: 'python', layouts: 1 }) : new Client();

/** Another server, on TCP, which wants a token. */
export const tcp = { address: process.env.HUTCH_TEST_TCP, token: process.env.HUTCH_TEST_TOKEN };

/** For anything that has to happen at all. */
export const MS = 150000;

export function rejected(promise) {
  return promise.then((value) => { throw new Error(`it was not rejected, but gave ${JSON.stringify(value)}`); },
                      (error) => error);
}

/** Polls, as there is nothing to wait for on this side. */
export async function until(holds) {
  const end = Date.now() + MS;
  while (!await holds()) {
    if (Date.now() > end) throw new Error('it did not happen');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export async function withSession(options, use) {
  const session = await client.session(options);
  try {
    return await use(session);
  } finally {
    await session.close();
  }
}
