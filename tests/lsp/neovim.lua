-- Neovim's own client with `cellc lsp`, without a screen: nvim --headless -u NONE -i NONE -n -c 'luafile ...'. Works from
-- Neovim 0.7 on. Prints what failed, and "N passed, N failed".
local passed, failed = 0, 0
local function check(name, ok)
  if ok then passed = passed + 1 else failed = failed + 1; io.write('FAIL ' .. name .. '\n') end
end

vim.cmd('edit specs/e79.cell')
local buffer = vim.api.nvim_get_current_buf()
local id = vim.lsp.start_client({ name = 'cellc', cmd = { os.getenv('CELLC') or 'build/cellc', 'lsp' }, root_dir = vim.fn.getcwd() })
vim.lsp.buf_attach_client(buffer, id)
check('the server starts', vim.wait(20000, function() return vim.lsp.buf_is_attached(buffer, id) and vim.lsp.get_client_by_id(id).initialized end))

local function line_of(text)
  for n, line in ipairs(vim.api.nvim_buf_get_lines(buffer, 0, -1, false)) do
    local at = line:find(text, 1, true)
    if at then return n - 1, at - 1, line end
  end
end
local function ask(method, more)
  local params = vim.tbl_extend('force', { textDocument = vim.lsp.util.make_text_document_params(buffer) }, more or {})
  local answers = vim.lsp.buf_request_sync(buffer, method, params, 20000)
  return answers and answers[id] or {}
end
local function at(text)
  local line, character = line_of(text)
  return { position = { line = line, character = character } }
end

local hover = ask('textDocument/hover', at('W_kvqm[4')).result
check('hover', hover and vim.inspect(hover.contents):find('A param, shape', 1, true))
local line, character, text = line_of('kn[j] + bs')
vim.api.nvim_buf_set_lines(buffer, line, line + 1, false, { (text:gsub('kn', 'kx', 1)) })
check('a diagnostic as one types', vim.wait(20000, function() return #vim.diagnostic.get(buffer) == 1 end))
check('its text', #vim.diagnostic.get(buffer) == 1 and vim.diagnostic.get(buffer)[1].message:find("unknown value 'kx'", 1, true))
vim.api.nvim_buf_set_lines(buffer, line, line + 1, false, { text })
check('and without it', vim.wait(20000, function() return #vim.diagnostic.get(buffer) == 0 end))
local definition = ask('textDocument/definition', at('kn[j] + bs')).result
check('definition', definition and definition.range.start.line == (line_of('kn[i] =')))
local edit = ask('textDocument/rename', vim.tbl_extend('force', at('kn[i] ='), { newName = 'key' })).result
vim.lsp.util.apply_workspace_edit(edit, vim.lsp.get_client_by_id(id).offset_encoding or 'utf-16')
check('rename', line_of('key[i] = k[i]') and not line_of('kn['))
check('no error after it', vim.wait(20000, function() return #vim.diagnostic.get(buffer) == 0 end))
local completed = ask('textDocument/completion', at('silu(r')).result
check('completion', completed and #completed.items > 50)
check('code lens', #(ask('textDocument/codeLens').result or {}) == 3)
io.write(passed .. ' passed, ' .. failed .. ' failed\n')
vim.lsp.stop_client(id)
vim.cmd('qall!')
