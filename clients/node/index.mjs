/* One copy of the classes serves both kinds of modules, so that instanceof holds between them. */
import hutch from './index.js';

export const { Client, HutchError, Session } = hutch;
export default hutch;
