// VS Code's extension against the real server, with a stub of VS Code's interface that keeps what it is
// given. In: CELLC. Out: what failed, and "N passed, N failed".
'use strict';

const assert = require('assert');
const fs = require('fs');
const Module = require('module');
const path = require('path');

class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range { constructor(a, b, c, d) { this.start = new Position(a, b); this.end = new Position(c, d); } }
class Plain { constructor(...given) { this.given = given; } }
class Diagnostic { constructor(range, message, severity) { Object.assign(this, { range, message, severity });
                                                           } }
class Uri {
    constructor(text) { this.text = text; this.scheme = text.split(':')[0]; }
    static parse(text) { return new Uri(text); }
    toString() { return this.text; }
}
class WorkspaceEdit { constructor() { this.edits = new Map(); } set(uri,
                                                                    edits) { this.edits.set(uri.toString(),
                                                                                            edits); } }

const providers = {}, commands = {}, on = {}, said = { errors: [], diagnostics: new Map(), pages: [] };
const settings = { path: process.env.CELLC || 'build/cellc', importDir: '' };
const event = (name) => (f) => { on[name] = f; return { dispose() {} }; };
const register = (name) => (...args) => { providers[name] = args; return { dispose() {} }; };
const vscode = {
    Position, Range, Uri, Diagnostic, WorkspaceEdit,
    Location: Plain, MarkdownString: Plain, TextEdit: class { constructor(range,
                                                                          newText) { Object.assign(this, { range, newText }); } },
    Hover: Plain, DocumentHighlight: Plain, DiagnosticRelatedInformation: Plain, SemanticTokens: Plain,
        SemanticTokensLegend: Plain,
    CodeLens: class { constructor(range, command) { Object.assign(this, { range, command }); } },
    CompletionItem: class { constructor(label, kind) { Object.assign(this, { label, kind }); } },
    CodeAction: class { constructor(title, kind) { Object.assign(this, { title, kind }); } },
    DocumentSymbol: class { constructor(name, detail, kind) { Object.assign(this, { name, detail, kind });
                                                              } },
    CodeActionKind: { QuickFix: 'quickfix' }, ViewColumn: { Beside: -2 },
    languages: {
        createDiagnosticCollection: () => ({
            set: (uri, list) => said.diagnostics.set(uri.toString(), list),
                delete: (uri) => said.diagnostics.delete(uri.toString()),
            clear: () => said.diagnostics.clear(), dispose() {},
        }),
        ...Object.fromEntries(['Hover', 'Definition', 'Reference', 'DocumentHighlight', 'CompletionItem',
                               'DocumentSymbol', 'Rename',
            'DocumentFormattingEdit', 'CodeActions', 'CodeLens', 'DocumentSemanticTokens'].map(
            (name) => [`register${name}Provider`, register(name)])),
    },
    window: {
        createOutputChannel: () => ({ append() {}, appendLine() {}, dispose() {} }),
            showErrorMessage: (m) => said.errors.push(m),
        showTextDocument: async () => {}, activeTextEditor: null,
    },
    workspace: {
        textDocuments: [], getConfiguration: () => ({ get: (name) => settings[name] }),
        openTextDocument: async (page) => { said.pages.push(page); return page; },
        createFileSystemWatcher: () => ({ onDidChange: event('fileChanged'), onDidCreate: event('fileMade'),
                                          onDidDelete: event('fileGone'), dispose() {} }),
        onDidOpenTextDocument: event('open'), onDidChangeTextDocument: event('change'),
            onDidCloseTextDocument: event('close'),
        onDidSaveTextDocument: event('save'), onDidChangeConfiguration: event('settings'),
    },
    commands: { registerCommand: (name, f) => { commands[name] = f; return { dispose() {} }; } },
};
const load = Module._load;
Module._load = (name, ...more) => (name === 'vscode' ? vscode : load(name, ...more));
const extension = require(path.resolve('editors/vscode/extension.js'));

const text = fs.readFileSync('specs/e79.cell', 'utf8');
const uri = new Uri('file:///nowhere/e79.cell');
const document = { languageId: 'cell', uri, version: 1, text, getText() { return this.text; } };
vscode.workspace.textDocuments.push(document);

function place(what) {
    const before = document.text.slice(0, document.text.indexOf(what)).split('\n');
    return new Position(before.length - 1, before[before.length - 1].length);
}

// As an editor: the text changes, and the extension is told.
function edit(what, by) {
    const start = place(what), range = new Range(start.line, start.character, start.line,
                                                 start.character + what.length);
    document.text = document.text.replace(what, by);
    document.version++;
    on.change({ document, contentChanges: [{ range, text: by }] });
}

async function until(what, holds) {
    for (const end = Date.now() + 30000; !holds(); await new Promise((done) => setTimeout(done, 5)))
        assert(Date.now() < end, `waited in vain: ${what}`);
}

const ask = (name, method, ...args) => providers[name].find((p) => p && p[method])[method](document, ...args);
const diagnostics = () => said.diagnostics.get(uri.toString());

const checks = {
    async 'diagnostics as one types'() {
        await until('the first diagnostics', () => diagnostics());
        assert.deepStrictEqual(diagnostics(), []);
        edit('sum[j] M[i,j] * kn[j] + bs[i]', 'sum[j] M[i,j] * kx[j] + bs[i]');
        await until('an error', () => diagnostics().length === 1);
        assert.match(diagnostics()[0].message, /unknown value 'kx'/);
        assert.strictEqual(diagnostics()[0].severity, 0);
        const [action] = await ask('CodeActions', 'provideCodeActions', new Range(0, 0, 99, 0), {}, null);
        const [[, [mend]]] = action.edit.edits;
        edit('kx', mend.newText);
        await until('no error', () => diagnostics().length === 0);
    },
    async 'hover, definition, highlights'() {
        const hover = await ask('Hover', 'provideHover', place('W_kvqm'), null);
        assert.match(hover.given[0].given[0], /A param, shape `\[256, D\]`/);
        const definition = await ask('Definition', 'provideDefinition', place('W_kvqm[N + i'), null);
        assert.strictEqual(definition.given[1].start.line, place('W_kvqm[4*N').line);
        assert.strictEqual((await ask('DocumentHighlight', 'provideDocumentHighlights', place('W_kvqm'),
                                      null)).length, 5);
        assert.strictEqual((await ask('Reference', 'provideReferences', place('W_kvqm'),
                                      { includeDeclaration: true }, null)).length, 5);
        assert.strictEqual(await ask('Hover', 'provideHover', new Position(0, 3), null), null);
    },
    async 'completion, symbols, colours'() {
        const items = await ask('CompletionItem', 'provideCompletionItems', place('silu(r'), null);
        assert(items.some((i) => i.label === 'sigmoid') && items.some((i) => i.label === 'W_kvqm'));
        const [cell] = await ask('DocumentSymbol', 'provideDocumentSymbols', null);
        assert.strictEqual(cell.name, 'e79');
        assert.strictEqual(cell.kind, 4);         // VS Code's number of a class
        const tokens = await ask('DocumentSemanticTokens', 'provideDocumentSemanticTokens', null);
        assert(tokens.given[0].length % 5 === 0 && tokens.given[0].length > 100);
    },
    async 'rename, and why not'() {
        const edits = await ask('Rename', 'provideRenameEdits', place('kn[i]'), 'key', null);
        assert.strictEqual(edits.edits.get(uri.toString()).length, 5);
        await assert.rejects(ask('Rename', 'provideRenameEdits', place('kn[i]'), 'x', null),
                             /already the name of an input/);
        await assert.rejects(ask('Rename', 'prepareRename', place('sigmoid'), null), /keeps its name/);
    },
    async 'formatting'() {
        edit('    dim D; ', 'dim   D ; ');
        const edits = await ask('DocumentFormattingEdit', 'provideDocumentFormattingEdits', {}, null);
        assert.strictEqual(edits.length, 1);
        assert.match(edits[0].newText, /^ {4}dim D; /);
        edit('dim   D ; ', '    dim D; ');
    },
    async 'the cost of a step, and its page'() {
        const lenses = await ask('CodeLens', 'provideCodeLenses', null);
        assert.match(lenses[1].command.title, /flops forward/);
        await commands['cellc.explain'](...lenses[0].command.arguments);
        assert.match(said.pages[0].content, /time goes by/);
        assert.deepStrictEqual(said.errors, []);
    },
    async 'a request that is cancelled'() {
        let cancel;
        const token = { onCancellationRequested: (f) => { cancel = f; return { dispose() {} }; } };
        const first = ask('CodeLens', 'provideCodeLenses', null),
                      second = ask('Hover', 'provideHover', place('W_kvqm'), token);
        await new Promise((done) => setImmediate(done));
        cancel();
        await first;
        assert([null, 'Hover'].includes(await second && 'Hover'));      // either way it is answered
    },
    async 'the server is started again, and a wrong path is said'() {
        said.diagnostics.clear();
        await commands['cellc.restart']();
        await until('diagnostics of the new server', () => diagnostics());
        assert.deepStrictEqual(diagnostics(), []);
        settings.path = '/nowhere/cellc';
        on.settings({ affectsConfiguration: () => true });
        await until('a message', () => said.errors.length);
        assert.match(said.errors[0], /cellc\.path/);
        settings.path = process.env.CELLC || 'build/cellc';
        await commands['cellc.restart']();
        assert.match((await ask('Hover', 'provideHover', place('W_kvqm'), null)).given[0].given[0],
                     /A param/);
    },
    async 'the end'() {
        on.close(document);
        assert.strictEqual(diagnostics(), undefined);
        await extension.deactivate();
    },
};

async function main() {
    let passed = 0, failed = 0;
    await extension.activate({ subscriptions: [] });
    for (const [name, check] of Object.entries(checks)) {
        try {
            await check();
            passed++;
        } catch (error) {
            failed++;
            console.log(`FAIL ${name}: ${error.stack}`);
        }
    }
    console.log(`${passed} passed, ${failed} failed`);
    process.exit(failed > 0 ? 1 : 0);
}

main();
