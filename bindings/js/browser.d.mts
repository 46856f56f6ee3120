// Types of the entry point for pages (`prebuilds/web/anyfn.mjs`): those of `index.d.ts` and sessions, and a default export with the
// same values.

import type { Package, Sessions } from './web/index.js';

export * from './index.js';
export const connect: Sessions['connect'];
export const makeKey: Sessions['makeKey'];
export const serve: Sessions['serve'];
declare const anyfn: Package;
export default anyfn;
