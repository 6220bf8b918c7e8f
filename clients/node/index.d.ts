/** hutch for Node: docs/clients.md of hutch is the manual. */
import { Readable } from 'node:stream';

/** What goes wrong outside of the code that is run. How that code ended is told by its result. */
export class HutchError extends Error {
  constructor(message: string, told?: {
    status?: number; code?: string; hint?: string | null; retryAfter?: number | null; cause?: unknown;
  });
  /** HTTP's; 0 when no server has answered. */
  readonly status: number;
  /** A word that does not change its meaning. */
  readonly code: string;
  /** What to do. */
  readonly hint: string | null;
  /** Seconds, where the server said so. */
  readonly retryAfter: number | null;
}

export interface Abortable {
  /** An abort closes the connection, which ends the run or interrupts the cell. The call rejects with its reason. */
  abortSignal?: AbortSignal;
}

export type Verdict = 'ok' | 'error' | 'timeout' | 'cpu_time' | 'out_of_memory' | 'output_limit' | 'killed' | 'denied' |
  'setup_failed';
export type Stream = 'stdout' | 'stderr';

export interface FileEntry {
  path: string;
  /** The true bytes of a name that is no UTF-8. */
  path_base64?: string;
  size?: number;
  mime?: string | null;
  type?: string;
  mtime?: number;
}

export interface Files {
  directory: string | null;
  added: FileEntry[];
  modified: FileEntry[];
  deleted: FileEntry[];
  truncated: boolean;
}

/** docs/results.md */
export interface Result {
  version: number;
  verdict: Verdict;
  exit_code: number | null;
  signal: string | null;
  message: string | null;
  stdout: string;
  stdout_truncated: boolean;
  stderr: string;
  stderr_truncated: boolean;
  error: { name: string; value: string; traceback: string } | null;
  files: Files;
  timings_ms: { queued: number; prepared: number; run: number; total: number };
  usage: Record<string, number | boolean | null>;
  limits: Record<string, { asked: number | null; enforced_by: string[] }>;
  /** What the sandbox was: docs/results.md; null where no program ran. */
  level: 'full' | 'no_proc' | null;
  layers: Record<string, { asked: string; active: boolean; detail: string }>;
  /** Of a rich run. */
  cell?: CellResult;
}

/** Of the call of a function. */
export interface CallResult extends Result {
  /** null without the verdict 'ok'. */
  value: unknown;
}

/** A function has not returned. */
export class FunctionError extends HutchError {
  constructor(result: CallResult);
  readonly result: CallResult;
}

/** An output as nbformat has it. */
export interface CellOutput {
  output_type: string;
  name?: string;
  text?: string;
  data?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
  [key: string]: unknown;
}

/** docs/sessions.md */
export interface CellResult {
  version: number;
  verdict: Verdict;
  message: string | null;
  execution_count: number | null;
  value: string | null;
  outputs: CellOutput[];
  truncated: boolean;
  error: {
    name: string; value: string; line: number | null; cause: string | null; traceback: string; traceback_ansi: string;
  } | null;
  interrupted: boolean;
  interpreter_died: boolean;
  fresh: boolean;
  files: Files | null;
  [key: string]: unknown;
}

export interface Limits {
  memoryBytes?: number;
  pids?: number;
  /** Thousandths of a CPU. */
  cpus?: number;
  outputBytes?: number;
  dataBytes?: number;
  dataFiles?: number;
  fileBytes?: number;
}

export interface RunOptions extends Limits, Abortable {
  language?: string;
  /** Of the program's file. */
  name?: string;
  args?: string[];
  env?: Record<string, string>;
  stdin?: string | Uint8Array;
  rich?: boolean;
  /** Further names of /mnt/data, such as '/workspace'. */
  dataTargets?: string[];
  /** Wall clock. */
  timeoutMs?: number;
  cpuMs?: number;
}

export interface CallOptions extends Limits, Abortable {
  /** Variables for this call alone. */
  env?: Record<string, string>;
  timeoutMs?: number;
  cpuMs?: number;
}

export interface RemoteFunction {
  /** What the handler returns. Rejects with a FunctionError where it does not. */
  (event?: unknown, options?: CallOptions): Promise<unknown>;
  /** The whole result, whatever became of it. */
  call(event?: unknown, options?: CallOptions): Promise<CallResult>;
}

export interface FunctionState {
  name: string;
  state: 'ready' | 'starting' | 'failed';
  error: string | null;
  prepared: number;
  building: number;
  calls: number;
  from_pool: number;
  on_demand: number;
}

export interface SessionOptions extends Limits, Abortable {
  env?: Record<string, string>;
  zygote?: string;
  idleMs?: number;
  lifetimeMs?: number;
  maxCheckpoints?: number;
  checkpointBytes?: number;
  /** Further names of /mnt/data, such as '/workspace'. */
  dataTargets?: string[];
  /** Of spawn(), at a time; without it, none. */
  maxProcesses?: number;
}

export interface CellOptions extends Abortable {
  context?: string;
  timeoutMs?: number;
  silent?: boolean;
  storeHistory?: boolean;
}

export type RunEvent = { event: 'output'; data: { stream: Stream; text: string } } | { event: 'result'; data: Result };
export type CellEvent = { event: 'output'; data: { stream: Stream; text: string } } |
  { event: 'display' | 'value' | 'error' | 'update' | 'clear'; data: CellOutput } |
  { event: 'result'; data: CellResult };
export type Shown = { kind: 'stream'; stream: Stream; text: string } |
  { kind: 'display' | 'value' | 'error' | 'update' | 'clear'; data: CellOutput };

export interface SessionInfo {
  id: string;
  created: number;
  last_used: number;
  waiting: number;
  idle_ms: number | null;
  lifetime_ms: number | null;
  /** docs/sessions.md, "What a session is like". */
  now?: Record<string, unknown>;
}

/** `from_pool`: runs that found a prepared sandbox in it; `on_demand`: that waited for one of it. */
export interface Pool {
  name: string;
  prepared: number;
  building: number;
  from_pool: number;
  on_demand: number;
}

/** `policies`: the pools of a zygote for other policies than the engine's. */
export interface Pools {
  pools: (Pool & { ready: boolean; forks: number; recycled: number; policies: Pool[] })[];
  running: number;
  queued: number;
  sessions: number;
}

/** As in hutch.h. `fallback`: the address of a server where there is no addon; false: that is an error. */
export interface InProcessOptions {
  home?: string;
  launcher?: string;
  image?: string;
  policy?: string;
  policyDir?: string;
  rootfs?: string;
  network?: 'none' | 'host';
  gpu?: 'compute';
  workdir?: string;
  env?: string[];
  volumes?: string[];
  tmpfs?: string[];
  dataTargets?: string[];
  zygotes?: { name: string; parent?: string; modules?: string[]; warmUp?: string; min?: number; max?: number }[];
  maxRunning?: number;
  maxQueued?: number;
  maxSessions?: number;
  layouts?: number;
  fallback?: string | false;
}

export class Client {
  /** @param address unix:PATH, HOST:PORT or http://HOST:PORT; without one $HUTCH_SERVER, else the usual socket.
   * `timeoutMs` is how long the server may say nothing. */
  constructor(address?: string, options?: { token?: string; timeoutMs?: number });
  /** With the library in this process, where its addon was built; else a server in its place, at `fallback`. */
  static inProcess(options?: InProcessOptions): Client;
  readonly transport: 'library' | 'server';
  run(code: string, options?: RunOptions & { onOutput?: (stream: Stream, text: string) => void }): Promise<Result>;
  stream(code: string, options?: RunOptions): AsyncGenerator<RunEvent, void, void>;
  function(name: string): RemoteFunction;
  functions(options?: Abortable): Promise<FunctionState[]>;
  session(options?: SessionOptions): Promise<Session>;
  findSession(id: string): Session;
  sessions(options?: Abortable): Promise<SessionInfo[]>;
  pools(options?: Abortable): Promise<Pools>;
  isHealthy(options?: Abortable): Promise<boolean>;
  isReady(options?: Abortable): Promise<boolean>;
  /** Closes the connections that wait for a request. */
  close(): void;
}

export type Content = string | Uint8Array | Blob | Readable | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;
export type Reply = { id: number; ms: number; bytes: number; lost: unknown[] };

export class Session {
  constructor(client: Client, id: string);
  readonly id: string;
  run(code: string, options?: CellOptions & { onOutput?: (output: Shown) => void }): Promise<CellResult>;
  stream(code: string, options?: CellOptions): AsyncGenerator<CellEvent, void, void>;
  /** Whether spawn() is there: a server's sessions have it. */
  readonly hasProcesses: boolean;
  /** Begins a program beside the cells: a text for /bin/sh -c, or a list. Open the session with `maxProcesses`. */
  spawn(command: string | string[], options?: ProcessOptions & { onOutput?: undefined }):
    Promise<Process<ProcessEnd & { stdout: string; stderr: string }>>;
  spawn(command: string | string[], options: ProcessOptions & {
    onOutput: (stream: Stream, bytes: Buffer) => unknown;
  }): Promise<Process<ProcessEnd>>;
  info(options?: Abortable): Promise<SessionInfo>;
  interrupt(options?: Abortable): Promise<boolean>;
  restart(options?: Abortable): Promise<void>;
  pause(options?: Abortable): Promise<void>;
  resume(options?: Abortable): Promise<void>;
  setLifetime(options: Abortable & { idleMs?: number; lifetimeMs?: number }): Promise<SessionInfo>;
  checkpoint(options?: Abortable): Promise<Reply>;
  rollback(checkpoint: number, options?: Abortable): Promise<Reply>;
  fork(options?: Abortable): Promise<Reply>;
  switch(branch?: number, options?: Abortable): Promise<Reply>;
  drop(checkpoint: number, options?: Abortable): Promise<Reply>;
  dropBranch(branch: number, options?: Abortable): Promise<Reply>;
  close(options?: Abortable): Promise<void>;
  /** Files below /mnt/data. A name is bytes: a Buffer names a file whose name is no UTF-8. */
  files(options?: Abortable): Promise<FileEntry[]>;
  upload(name: string | Uint8Array, content: Content, options?: Abortable): Promise<{ path: string; size: number }>;
  download(name: string | Uint8Array, options?: Abortable & { start?: number; end?: number }): Promise<Buffer>;
  downloadStream(name: string | Uint8Array, options?: Abortable & { start?: number; end?: number }): Promise<Readable>;
  deleteFile(name: string | Uint8Array, options?: Abortable): Promise<void>;
}

/** `timeoutMs`: SIGTERM then, and SIGKILL two seconds later. */
export interface ProcessOptions extends Abortable {
  env?: Record<string, string>;
  cwd?: string;
  /** A pipe, for write(); without it, the input is at its end. */
  stdin?: boolean;
  timeoutMs?: number;
  outputBytes?: number;
  /** It is killed when the answer is aborted. */
  endWithClient?: boolean;
}

export interface ProcessEnd {
  /** Null: it did not exit by itself. */
  exitCode: number | null;
  signal: number | null;
  message: string | null;
  truncated: boolean;
  runMs: number;
}

export class Process<End = ProcessEnd> {
  private constructor();
  readonly id: number;
  wait(): Promise<End>;
  write(data: string | Uint8Array, options?: Abortable): Promise<void>;
  closeStdin(options?: Abortable): Promise<void>;
  /** False: it had ended. */
  signal(signal: string | number, options?: Abortable): Promise<boolean>;
}

/* ---- AI SDK 7: `experimental_sandbox` */

type PathOptions = Abortable & { path: string };
type CommandOptions = Abortable & { command: string; workingDirectory?: string; env?: Record<string, string> };

export interface SandboxProcess {
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  wait(): Promise<{ exitCode: number }>;
  kill(): Promise<void>;
}

export class SandboxSession {
  constructor(session: Session, options?: { description?: string });
  static open(client: Client, options?: SessionOptions & { description?: string }): Promise<SandboxSession>;
  readonly description: string;
  readonly session: Session;
  close(): Promise<void>;
  readFile(options: PathOptions): Promise<ReadableStream<Uint8Array> | null>;
  readBinaryFile(options: PathOptions): Promise<Uint8Array | null>;
  readTextFile(options: PathOptions & { encoding?: string; startLine?: number; endLine?: number }):
    Promise<string | null>;
  writeFile(options: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void>;
  writeBinaryFile(options: PathOptions & { content: Uint8Array }): Promise<void>;
  writeTextFile(options: PathOptions & { content: string; encoding?: string }): Promise<void>;
  stat(options: PathOptions): Promise<{ type: 'file' | 'directory' | 'other'; size: number } | null>;
  listDirectory(options: PathOptions):
    Promise<{ name: string; type: 'file' | 'directory' | 'symlink' | 'other' }[] | null>;
  deleteFile(options: PathOptions): Promise<boolean>;
  spawn(options: CommandOptions & { stdin: true }):
    Promise<SandboxProcess & { readonly stdin: WritableStream<Uint8Array> }>;
  spawn(options: CommandOptions & { stdin?: false }): Promise<SandboxProcess>;
  spawn(options: CommandOptions & { stdin?: boolean }):
    Promise<SandboxProcess | (SandboxProcess & { readonly stdin: WritableStream<Uint8Array> })>;
  run(options: CommandOptions): Promise<{ exitCode: number; stdout: string; stderr: string }>;
}

/* ---- the face of interpreter-tools */

export const ContainerStrategy: {
  readonly PER_EXECUTION: 'per_execution';
  readonly POOL: 'pool';
  readonly PER_SESSION: 'per_session';
};
export type ContainerStrategy = 'per_execution' | 'pool' | 'per_session';

export type Language = 'typescript' | 'javascript' | 'python' | 'shell' | (string & {});

export interface StreamOutput {
  stdout?: (data: string) => void;
  stderr?: (data: string) => void;
  dependencyStdout?: (data: string) => void;
  dependencyStderr?: (data: string) => void;
}

export interface ExecutionOptions extends Abortable {
  language: Language;
  code?: string;
  dependencies?: string[];
  /** Milliseconds. */
  timeout?: number;
  /** "512m" */
  memoryLimit?: string;
  /** "0.5" */
  cpuLimit?: string;
  verbose?: boolean;
  runApp?: { cwd: string; entryFile: string };
  streamOutput?: StreamOutput;
  workspaceSharing?: 'isolated' | 'shared';
}

export interface ExecutionResult {
  stdout: string;
  stderr: string;
  dependencyStdout: string;
  dependencyStderr: string;
  exitCode: number;
  executionTime: number;
  workspaceDir: string;
  generatedFiles: string[];
  sessionGeneratedFiles: string[];
}

export interface MountOptions {
  /** 'zip' is refused. */
  type: 'file' | 'directory' | 'zip';
  source: string;
  target: string;
}
export type ContainerMount = MountOptions;

export interface ContainerConfig {
  image?: string;
  mounts?: MountOptions[];
  environment?: Record<string, string>;
  name?: string;
  cpuLimit?: string;
  memoryLimit?: string;
}

export interface SessionConfig {
  strategy: ContainerStrategy;
  poolConfig?: { maxSize: number; minSize: number; idleTimeout: number };
  containerConfig?: ContainerConfig;
  sessionId?: string;
  enforceNewSession?: boolean;
}

export interface ExecutionSessionInfo {
  sessionId: string;
  config: SessionConfig;
  currentContainer: { container: undefined; meta: Record<string, unknown> };
  containerHistory: Record<string, unknown>[];
  createdAt: Date;
  lastExecutedAt: Date | null;
  isActive: boolean;
}

export class ExecutionEngine {
  constructor(options?: { client?: Client });
  setVerbosity(level: 'info' | 'debug'): void;
  createSession(config: SessionConfig): Promise<string>;
  executeCode(sessionId: string, options: ExecutionOptions): Promise<ExecutionResult>;
  cleanupSession(sessionId: string, keepGeneratedFiles?: boolean): Promise<void>;
  cleanup(keepGeneratedFiles?: boolean): Promise<void>;
  addFileFromBase64(sessionId: string, relativePath: string, dataBase64: string): Promise<void>;
  copyFileIntoWorkspace(sessionId: string, localPath: string, destRelativePath: string): Promise<void>;
  readFileBinary(sessionId: string, relativePath: string): Promise<Buffer>;
  readFileBase64(sessionId: string, relativePath: string): Promise<string>;
  listWorkspaceFiles(sessionId: string, onlyGenerated?: boolean): Promise<string[]>;
  getSessionInfo(sessionId: string): Promise<ExecutionSessionInfo>;
}

export interface LanguageConfig {
  language: string;
  defaultImage: string;
  codeFilename: string;
  prepareFiles: (options: ExecutionOptions, directory: string) => void;
  buildInlineCommand: (depsInstalled: boolean) => string[];
  buildRunAppCommand: (entryFile: string, depsInstalled: boolean) => string[];
}

export class LanguageRegistry {
  static get(language: string): LanguageConfig | undefined;
  static register(config: LanguageConfig): void;
  static list(): LanguageConfig[];
  static names(): string[];
}

export function getImageForLanguage(language: string): string;

export interface CodeExecutionInput {
  code: string;
  language: string;
  dependencies?: string[];
  environment?: Record<string, string>;
  runApp?: { entryFile: string; cwd: string };
}

/** A JSON schema that the AI SDK takes for one of its own, too. */
export interface InputSchema {
  readonly type: 'object';
  readonly properties: Record<string, unknown>;
  readonly required: string[];
  readonly additionalProperties: false;
}

export interface CodeExecutionTool {
  description: string;
  /** AI SDK 4's name for it, and OpenAI's. */
  parameters: any;
  /** AI SDK 5's and later. */
  inputSchema: any;
  execute(input: CodeExecutionInput & { streamOutput?: StreamOutput; workspaceSharing?: 'isolated' | 'shared' },
          options?: { abortSignal?: AbortSignal }): Promise<ExecutionResult>;
}

export interface CodeExecutionToolConfig {
  mounts?: MountOptions[];
  sessionId?: string;
  defaultStrategy?: ContainerStrategy;
  verbosity?: 'debug' | 'info';
  workspaceSharing?: 'isolated' | 'shared';
  client?: Client;
  /** Those that the model is told of; all that are registered without it. */
  languages?: string[];
  /** Milliseconds for one execution. */
  timeout?: number;
}

export function createCodeExecutionTool(config?: CodeExecutionToolConfig): {
  codeExecutionTool: CodeExecutionTool;
  executionEngine: ExecutionEngine;
  cleanup: (keepGeneratedFiles?: boolean) => Promise<void>;
};

export const codeExecutionTool: CodeExecutionTool;
export const executionEngine: ExecutionEngine;
export function cleanup(keepGeneratedFiles?: boolean): Promise<void>;
