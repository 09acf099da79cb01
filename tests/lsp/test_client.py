"""`cellc lsp` and a client that others wrote: pytest-lsp, which reads every message as the types of lsprotocol and complains of
what the protocol does not have. To be run by pytest; the capabilities are those of two editors."""
import os

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

with open("specs/e79.cell") as spec:
    E79 = spec.read()
URI = "file:///nowhere/e79.cell"
CONFIG = ClientServerConfig(server_command=[os.environ.get("CELLC", "build/cellc"), "lsp"])


@pytest_lsp.fixture(config=CONFIG, params=["visual-studio-code", "neovim", "emacs"])
async def client(request, lsp_client: LanguageClient):
    await lsp_client.initialize_session(types.InitializeParams(capabilities=client_capabilities(request.param)))
    item = types.TextDocumentItem(uri=URI, language_id="cell", version=1, text=E79)
    lsp_client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
    await lsp_client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    yield
    await lsp_client.shutdown_session()


DOCUMENT = types.TextDocumentIdentifier(uri=URI)


def place(what):
    at = E79.index(what)
    return types.Position(line=E79.count("\n", 0, at), character=at - E79.rfind("\n", 0, at) - 1)


def change(client, version, what, by):
    start = place(what)
    end = types.Position(line=start.line, character=start.character + len(what))
    client.text_document_did_change(types.DidChangeTextDocumentParams(
        text_document=types.VersionedTextDocumentIdentifier(uri=URI, version=version),
        content_changes=[types.TextDocumentContentChangePartial(range=types.Range(start=start, end=end), text=by)]))


@pytest.mark.asyncio
async def test_diagnostics(client):
    assert list(client.diagnostics[URI]) == []
    change(client, 2, "sigmoid(sum[j] M[i,j]", "sigmoit(sum[j] M[i,j]")
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    (found,) = client.diagnostics[URI]
    assert found.severity == types.DiagnosticSeverity.Error and "did you mean 'sigmoid'?" in found.message
    actions = await client.text_document_code_action_async(types.CodeActionParams(
        text_document=DOCUMENT, range=found.range, context=types.CodeActionContext(diagnostics=[found])))
    assert [e.new_text for e in actions[0].edit.changes[URI]] == ["sigmoid"]
    with pytest.raises(Exception, match="already the name"):
        await client.text_document_rename_async(types.RenameParams(text_document=DOCUMENT, position=place("kn[i]"), new_name="x"))


@pytest.mark.asyncio
async def test_names(client):
    hover = await client.text_document_hover_async(types.HoverParams(text_document=DOCUMENT, position=place("sr[i]")))
    assert "A definition, shape `[64]`" in hover.contents.value and "Computed at each step" in hover.contents.value
    definition = await client.text_document_definition_async(
        types.DefinitionParams(text_document=DOCUMENT, position=place("kn[j] + bs")))
    assert definition.uri == URI and definition.range.start == place("kn[i] =")
    references = await client.text_document_references_async(types.ReferenceParams(
        text_document=DOCUMENT, position=place("kn[i]"), context=types.ReferenceContext(include_declaration=False)))
    assert len(references) == 4
    highlights = await client.text_document_document_highlight_async(
        types.DocumentHighlightParams(text_document=DOCUMENT, position=place("kn[i]")))
    assert len(highlights) == 5
    renamed = await client.text_document_prepare_rename_async(
        types.PrepareRenameParams(text_document=DOCUMENT, position=place("kn[i]")))
    assert renamed.placeholder == "kn"
    edit = await client.text_document_rename_async(
        types.RenameParams(text_document=DOCUMENT, position=place("kn[i]"), new_name="key"))
    assert len(edit.changes[URI]) == 5


@pytest.mark.asyncio
async def test_document(client):
    (cell,) = await client.text_document_document_symbol_async(types.DocumentSymbolParams(text_document=DOCUMENT))
    assert cell.name == "e79" and cell.kind == types.SymbolKind.Class
    items = await client.text_document_completion_async(types.CompletionParams(text_document=DOCUMENT, position=place("silu(r")))
    assert {"W_kvqm", "i", "sum", "sigmoid"} <= {item.label for item in items.items}
    tokens = await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(text_document=DOCUMENT))
    assert len(tokens.data) % 5 == 0
    options = types.FormattingOptions(tab_size=4, insert_spaces=True)
    assert not await client.text_document_formatting_async(
        types.DocumentFormattingParams(text_document=DOCUMENT, options=options))
    lenses = await client.text_document_code_lens_async(types.CodeLensParams(text_document=DOCUMENT))
    assert "flops forward" in lenses[1].command.title
    page = await client.workspace_execute_command_async(
        types.ExecuteCommandParams(command=lenses[0].command.command, arguments=lenses[0].command.arguments))
    assert "time goes by" in page
