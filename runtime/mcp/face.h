/* face.h - the faces that a client may see: all tools, or the one tool that gpt-oss was trained with. */
#ifndef HUTCH_MCP_FACE_H
#define HUTCH_MCP_FACE_H

struct mcp_face;

/* All tools. */
extern const struct mcp_face hutch_mcp_usual_face;
/* A server named "python" with the tool "python", whose answer is what was printed: vLLM and SGLang take the name of
 * the server for that of the tool which the model knows, and the instructions for a part of the prompt. */
extern const struct mcp_face hutch_mcp_python_face;

#endif
