// Types of the ES module: those of `index.d.ts`, and a default export with the same values.

export * from './index.js';
import * as anyfn from './index.js';
export default anyfn;
