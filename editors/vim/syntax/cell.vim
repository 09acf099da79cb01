" Syntax of cellc's .cell specs. Copy this directory's syntax/ and ftdetect/ to ~/.vim.
if exists('b:current_syntax')
  finish
endif

syntax keyword cellStructure import cell fn adjoint
syntax keyword cellDeclare dim const option input param state output reset carry
syntax keyword cellControl when else repeat
syntax match cellControl '\<in\ze\s*\([(\[]\|reach\>\)'
syntax keyword cellReduce sum mean max min prod softmax
syntax keyword cellConstant inf
syntax match cellFunction '\<\h\w*\ze\s*('
syntax match cellNumber '\<\d\+\(\.\d\+\)\?\([eE][-+]\?\d\+\)\?\>'
syntax match cellNext "\<\h\w*'"
syntax match cellInit '\~\s*\h\w*'
syntax match cellOperator '[-+*/%^<>=!?:&|]'
syntax region cellString start='"' end='"' oneline
syntax match cellComment '//.*$' contains=@Spell
syntax region cellComment start='/\*' end='\*/' contains=@Spell

highlight default link cellStructure Structure
highlight default link cellDeclare Type
highlight default link cellControl Conditional
highlight default link cellReduce Repeat
highlight default link cellConstant Constant
highlight default link cellFunction Function
highlight default link cellNumber Number
highlight default link cellNext Identifier
highlight default link cellInit PreProc
highlight default link cellOperator Operator
highlight default link cellString String
highlight default link cellComment Comment

setlocal commentstring=//\ %s
let b:current_syntax = 'cell'
