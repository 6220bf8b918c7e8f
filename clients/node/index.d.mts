export * from './index.js';
import * as hutch from './index.js';
export default hutch;
