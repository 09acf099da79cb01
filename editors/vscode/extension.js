// The client of `cellc lsp` in VS Code: starts the server, keeps it told of the texts that are open, and asks
// it what the editor asks. It needs VS Code's interface and Node's own modules, no package. In: documents
// whose language is cell. Out: diagnostics, and a provider for each thing that the server offers.
'use strict';

const { spawn } = require('child_process');
const vscode = require('vscode');

const SELECTOR = [{ language: 'cell', scheme: 'file' }, { language: 'cell', scheme: 'untitled' }];
const MAX_RESTARTS = 5;               // within MINUTES
const MINUTES = 3;

// ---- JSON-RPC over the streams of a process

class Connection {
    // `heard` is called with each notification and request of the server, `ended` once when nothing more
    // comes.
    constructor(process, heard, ended) {
        this.process = process;
        this.heard = heard;
        this.waiting = new Map();     // of requests, by id: { resolve, reject }
        this.id = 0;
        this.read = Buffer.alloc(0);
        this.over = false;
        process.stdout.on('data', (data) => this.take(data));
        process.stdin.on('error', () => {});    // it is seen by the end of the process
        const end = (why) => {
            if (this.over)
                return;
            this.over = true;
            for (const { reject } of this.waiting.values())
                reject(new Error(why));
            this.waiting.clear();
            ended(why);
        };
        process.on('error', (error) => end(error.message));
        process.on('close', (code, signal) => end(signal ? `signal ${signal}` : `exit code ${code}`));
    }

    take(data) {
        this.read = Buffer.concat([this.read, data]);
        for (;;) {
            const header = this.read.indexOf('\r\n\r\n');
            const length = header < 0 ? null : /content-length: *(\d+)/i.exec(this.read.toString('latin1', 0,
                                                                                                 header));
            if (!length || this.read.length < header + 4 + Number(length[1]))
                return;
            const end = header + 4 + Number(length[1]);
            const message = JSON.parse(this.read.toString('utf8', header + 4, end));
            this.read = this.read.subarray(end);
            this.dispatch(message);
        }
    }

    dispatch(message) {
        if (message.method !== undefined) {
            this.heard(message);
            if (message.id !== undefined)
                this.send({ id: message.id, result: null });
            return;
        }
        const asked = this.waiting.get(message.id);
        this.waiting.delete(message.id);
        if (asked && message.error)
            asked.reject(Object.assign(new Error(message.error.message), { code: message.error.code }));
        else if (asked)
            asked.resolve(message.result);
    }

    send(message) {
        if (this.over)
            return;
        const content = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }), 'utf8');
        this.process.stdin.write(`Content-Length: ${content.length}\r\n\r\n`);
        this.process.stdin.write(content);
    }

    tell(method, params) {
        this.send({ method, params });
    }

    ask(method, params, token) {
        if (this.over)
            return Promise.reject(new Error('the language server has ended'));
        const id = ++this.id;
        const answer = new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
        const cancels = token && token.onCancellationRequested(() => this.tell('$/cancelRequest', { id }));
        const done = () => cancels && cancels.dispose();
        answer.then(done, done);
        this.send({ id, method, params });
        return answer;
    }
}

// ---- between the protocol and VS Code

const toRange = (r) => new vscode.Range(r.start.line, r.start.character, r.end.line, r.end.character);
const fromPosition = (p) => ({ line: p.line, character: p.character });
const fromRange = (r) => ({ start: fromPosition(r.start), end: fromPosition(r.end) });
const toLocation = (l) => new vscode.Location(vscode.Uri.parse(l.uri), toRange(l.range));
const toMarkdown = (m) => new vscode.MarkdownString(m.value);
const toTextEdit = (e) => new vscode.TextEdit(toRange(e.range), e.newText);

function toDiagnostic(d) {
    const diagnostic = new vscode.Diagnostic(toRange(d.range), d.message, d.severity - 1);
    diagnostic.source = d.source;
    diagnostic.tags = d.tags;
    diagnostic.relatedInformation = (d.relatedInformation || []).map(
        (r) => new vscode.DiagnosticRelatedInformation(toLocation(r.location), r.message));
    return diagnostic;
}

function toWorkspaceEdit(edit) {
    const all = new vscode.WorkspaceEdit();
    for (const [uri, edits] of Object.entries(edit.changes))
        all.set(vscode.Uri.parse(uri), edits.map(toTextEdit));
    return all;
}

function toSymbol(s) {
    // The protocol counts kinds from 1, VS Code from 0.
    const symbol = new vscode.DocumentSymbol(s.name, s.detail, s.kind - 1, toRange(s.range),
                                             toRange(s.selectionRange));
    symbol.children = s.children.map(toSymbol);
    return symbol;
}

function toItem(i) {
    const item = new vscode.CompletionItem(i.label, i.kind - 1);
    item.detail = i.detail;
    item.documentation = i.documentation && toMarkdown(i.documentation);
    return item;
}

function toAction(a) {
    const action = new vscode.CodeAction(a.title, vscode.CodeActionKind.QuickFix);
    action.edit = toWorkspaceEdit(a.edit);
    action.diagnostics = a.diagnostics.map(toDiagnostic);
    action.isPreferred = a.isPreferred;
    return action;
}

// ---- the client

class Client {
    constructor(context) {
        this.context = context;
        this.connection = null;
        this.ready = Promise.resolve();
        this.starts = [];             // times of the last starts
        this.stopping = false;
        this.diagnostics = vscode.languages.createDiagnosticCollection('cellc');
        this.log = vscode.window.createOutputChannel('cellc');
        this.providers = null;
        context.subscriptions.push(this.diagnostics, this.log, { dispose: () => this.stop() });
    }

    start() {
        const settings = vscode.workspace.getConfiguration('cellc');
        const path = settings.get('path') || 'cellc', importDir = settings.get('importDir');
        const words = importDir ? ['lsp', '--import-dir', importDir] : ['lsp'];
        const process = spawn(path, words, { stdio: ['pipe', 'pipe', 'pipe'] });
        process.stderr.on('data', (data) => this.log.append(data.toString()));
        const connection = new Connection(process, (m) => this.hear(m),
                                          (why) => this.ended(connection, path, why));
        this.connection = connection;
        this.starts.push(Date.now());
        this.ready = this.initialize(connection);
        return this.ready;
    }

    async initialize(connection) {
        const textDocument = {
            publishDiagnostics: { relatedInformation: true },
            hover: { contentFormat: ['markdown'] },
            completion: { completionItem: { documentationFormat: ['markdown'] } },
            documentSymbol: { hierarchicalDocumentSymbolSupport: true },
            codeAction: { codeActionLiteralSupport: { codeActionKind: { valueSet: ['quickfix'] } } },
        };
        let result;
        try {
            result = await connection.ask('initialize', { processId: process.pid, rootUri: null,
                                                          capabilities: { textDocument } });
        } catch {
            return;                   // `ended` says so
        }
        connection.tell('initialized', {});
        if (!this.providers)
            this.provide(result.capabilities);
        for (const document of vscode.workspace.textDocuments)
            this.open(document);
    }

    hear(message) {
        if (message.method === 'textDocument/publishDiagnostics')
            this.diagnostics.set(vscode.Uri.parse(message.params.uri),
                                 message.params.diagnostics.map(toDiagnostic));
    }

    ended(connection, path, why) {
        if (this.stopping || connection !== this.connection)
            return;
        this.connection = null;
        this.diagnostics.clear();
        this.starts = this.starts.filter((t) => Date.now() - t < MINUTES * 60000);
        if (/ENOENT|EACCES/.test(why)) {
            vscode.window.showErrorMessage(`There is no program '${path}': the setting cellc.path says where cellc is.`);
        } else if (this.starts.length >= MAX_RESTARTS) {
            vscode.window.showErrorMessage(`The language server of cellc ended ${MAX_RESTARTS} times (${why}) and is not started again.`);
        } else {
            this.log.appendLine(`the server ended (${why}) and is started again`);
            this.start();
        }
    }

    async stop() {
        const connection = this.connection;
        this.stopping = true;
        this.connection = null;
        if (!connection || connection.over)
            return;
        try {
            await connection.ask('shutdown');
            connection.tell('exit');
        } catch {
            connection.process.kill();
        }
    }

    async restart() {
        await this.stop();
        this.stopping = false;
        this.starts = [];
        await this.start();
    }

    // ---- texts

    isCell(document) {
        return document.languageId === 'cell' && (document.uri.scheme === 'file' ||
                                                  document.uri.scheme === 'untitled');
    }

    tell(method, params) {
        if (this.connection)
            this.connection.tell(method, params);
    }

    open(document) {
        if (this.isCell(document))
            this.tell('textDocument/didOpen', { textDocument: { uri: document.uri.toString(),
                                                                languageId: 'cell',
                version: document.version, text: document.getText() } });
    }

    // VS Code gives changes so that each counts in the text before all of them, the last one first.
    change(event) {
        if (this.isCell(event.document) && event.contentChanges.length)
            this.tell('textDocument/didChange', {
                textDocument: { uri: event.document.uri.toString(), version: event.document.version },
                contentChanges: event.contentChanges.map((c) => ({ range: fromRange(c.range),
                                                                   text: c.text })),
            });
    }

    close(document) {
        if (!this.isCell(document))
            return;
        this.tell('textDocument/didClose', { textDocument: { uri: document.uri.toString() } });
        this.diagnostics.delete(document.uri);
    }

    // ---- what the editor asks

    async ask(method, document, more, token) {
        await this.ready;
        if (!this.connection)
            return null;
        return this.connection.ask(method, { textDocument: { uri: document.uri.toString() }, ...more },
                                   token);
    }

    // Of what is only shown, an error is nothing.
    async see(method, document, more, token) {
        try {
            return await this.ask(method, document, more, token);
        } catch {
            return null;
        }
    }

    at(method, document, position, token, more) {
        return this.see(method, document, { position: fromPosition(position), ...more }, token);
    }

    provide(can) {
        const languages = vscode.languages, legend = can.semanticTokensProvider.legend;
        const keep = (provider) => this.context.subscriptions.push(provider);
        this.providers = true;
        keep(languages.registerHoverProvider(SELECTOR, {
            provideHover: async (d, p, token) => {
                const h = await this.at('textDocument/hover', d, p, token);
                return h && new vscode.Hover(toMarkdown(h.contents), toRange(h.range));
            },
        }));
        keep(languages.registerDefinitionProvider(SELECTOR, {
            provideDefinition: async (d, p, token) => {
                const l = await this.at('textDocument/definition', d, p, token);
                return l && toLocation(l);
            },
        }));
        keep(languages.registerReferenceProvider(SELECTOR, {
            provideReferences: async (d, p, context, token) =>
                (await this.at('textDocument/references', d, p, token, { context }) || []).map(toLocation),
        }));
        keep(languages.registerDocumentHighlightProvider(SELECTOR, {
            provideDocumentHighlights: async (d, p, token) =>
                (await this.at('textDocument/documentHighlight', d, p, token) || []).map(
                    (h) => new vscode.DocumentHighlight(toRange(h.range), h.kind - 1)),
        }));
        keep(languages.registerCompletionItemProvider(SELECTOR, {
            provideCompletionItems: async (d, p, token) =>
                (await this.at('textDocument/completion', d, p, token) || { items: [] }).items.map(toItem),
        }, ...can.completionProvider.triggerCharacters));
        keep(languages.registerDocumentSymbolProvider(SELECTOR, {
            provideDocumentSymbols: async (d, token) =>
                (await this.see('textDocument/documentSymbol', d, {}, token) || []).map(toSymbol),
        }));
        keep(languages.registerRenameProvider(SELECTOR, {
            prepareRename: async (d, p, token) => {
                const r = await this.ask('textDocument/prepareRename', d, { position: fromPosition(p) },
                                         token);
                return r && { range: toRange(r.range), placeholder: r.placeholder };
            },
            provideRenameEdits: async (d, p, newName, token) => {
                const edit = await this.ask('textDocument/rename', d, { position: fromPosition(p), newName },
                                            token);
                return edit ? toWorkspaceEdit(edit) : new vscode.WorkspaceEdit();
            },
        }));
        keep(languages.registerDocumentFormattingEditProvider(SELECTOR, {
            provideDocumentFormattingEdits: async (d, options, token) =>
                (await this.see('textDocument/formatting', d, { options: {} }, token) || []).map(toTextEdit),
        }));
        keep(languages.registerCodeActionsProvider(SELECTOR, {
            provideCodeActions: async (d, range, context, token) =>
                (await this.see('textDocument/codeAction', d,
                                { range: fromRange(range), context: { diagnostics: [] } }, token) || [])
                    .map(toAction),
        }, { providedCodeActionKinds: [vscode.CodeActionKind.QuickFix] }));
        keep(languages.registerCodeLensProvider(SELECTOR, {
            provideCodeLenses: async (d, token) =>
                (await this.see('textDocument/codeLens', d, {}, token) || []).map(
                    (l) => new vscode.CodeLens(toRange(l.range), l.command)),
        }));
        keep(languages.registerDocumentSemanticTokensProvider(SELECTOR, {
            provideDocumentSemanticTokens: async (d, token) => {
                const t = await this.see('textDocument/semanticTokens/full', d, {}, token);
                return t && new vscode.SemanticTokens(new Uint32Array(t.data));
            },
        }, new vscode.SemanticTokensLegend(legend.tokenTypes, legend.tokenModifiers)));
    }

    // The page of `cellc explain` about a cell of the document, beside it.
    async explain(uri, cell) {
        const editor = vscode.window.activeTextEditor;
        const document = uri ? vscode.workspace.textDocuments.find((d) => d.uri.toString() === vscode.Uri.parse(uri).toString())
                             : editor && editor.document;
        if (!document || !this.isCell(document))
            return;
        try {
            const content = await this.ask('cellc/explain', document, cell ? { cell } : {});
            const page = await vscode.workspace.openTextDocument({ content, language: 'plaintext' });
            await vscode.window.showTextDocument(page, { viewColumn: vscode.ViewColumn.Beside,
                                                         preview: true });
        } catch (error) {
            vscode.window.showErrorMessage(`cellc: ${error.message}`);
        }
    }
}

let client = null;

async function activate(context) {
    client = new Client(context);
    const keep = (...things) => context.subscriptions.push(...things);
    keep(vscode.workspace.onDidOpenTextDocument((d) => client.open(d)),
         vscode.workspace.onDidChangeTextDocument((e) => client.change(e)),
         vscode.workspace.onDidCloseTextDocument((d) => client.close(d)),
         vscode.workspace.onDidSaveTextDocument((d) => client.isCell(d) &&
             client.tell('textDocument/didSave', { textDocument: { uri: d.uri.toString() } })),
         vscode.workspace.onDidChangeConfiguration((e) => e.affectsConfiguration('cellc') &&
                                                   client.restart()),
         vscode.commands.registerCommand('cellc.explain', (uri, cell) => client.explain(uri, cell)),
         vscode.commands.registerCommand('cellc.restart', () => client.restart()));
    const watcher = vscode.workspace.createFileSystemWatcher('**/*.cell');
    const changed = () => client.tell('workspace/didChangeWatchedFiles', { changes: [] });
    keep(watcher, watcher.onDidChange(changed), watcher.onDidCreate(changed), watcher.onDidDelete(changed));
    await client.start();
}

async function deactivate() {
    if (client)
        await client.stop();
    client = null;
}

module.exports = { activate, deactivate };
