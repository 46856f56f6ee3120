// Uses a server from a page.

import * as anyfn from './anyfn.mjs';
import { report } from './report.mjs';
import { runSessions } from './session-cases.mjs';

await report(async () => runSessions(anyfn, await (await fetch('/inputs.json')).json()));
