// Asks a model over the API that most servers of models speak. No package is needed.
//   MODEL_URL  base of the API, e.g. http://localhost:8000/v1     MODEL  its name     MODEL_KEY  where one is wanted

/** The model's next message. */
export async function ask(messages) {
  const { MODEL_URL, MODEL = 'default', MODEL_KEY } = process.env;
  const headers = { 'Content-Type': 'application/json', ...(MODEL_KEY && { Authorization: `Bearer ${MODEL_KEY}` }) };
  const answer = await fetch(`${MODEL_URL}/chat/completions`,
                             { method: 'POST', headers, body: JSON.stringify({ model: MODEL, messages }) });
  if (!answer.ok) throw new Error(`the model's server answered with status ${answer.status}`);
  return (await answer.json()).choices[0].message;
}

/** The program in a message: what stands between fences, or all of it. */
export function codeOf({ content }) {
  return /```(?:python)?\n([\s\S]*?)```/.exec(content)?.[1] ?? content;
}
