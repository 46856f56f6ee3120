// Sends the result of a page to the test: a value, or an error.

const send = (content) => fetch('/report', { method: 'POST', body: JSON.stringify(content) });

addEventListener('error', (event) => send({ error: String(event.error?.stack ?? event.message) }));
addEventListener('unhandledrejection', (event) => send({ error: String(event.reason?.stack ?? event.reason) }));
globalThis.document?.addEventListener('securitypolicyviolation', (event) => {
  send({ error: `the policy of the page forbids ${event.violatedDirective} ${event.blockedURI}` });
});

/** Runs a function, and sends its result. */
export async function report(run) {
  try {
    await send({ result: (await run()) ?? null });
  } catch (error) {
    await send({ error: String(error?.stack ?? error) });
  }
}
