/* cell_rough.h: included ahead of a cell's reference C that is compiled in float, for the ladder alone: the
 * functions that kernels with storage of 16 bits approximate are off by as much as theirs may be
 * (ladder/rough.c). What the reference includes itself, it has then included before; a function's name has no
 * other use in it (gen/emit/taken.c). C only. */
#ifndef CELL_ROUGH_H
#define CELL_ROUGH_H

#include <math.h>
#include <tgmath.h>

float ladder_tanh(float x);
float ladder_exp(float x);
float ladder_log1p(float x);
float ladder_erf(float x);
float ladder_erfc(float x);

#undef tanh
#define tanh(x) ladder_tanh(x)
#undef exp
#define exp(x) ladder_exp(x)
#undef log1p
#define log1p(x) ladder_log1p(x)
#undef erf
#define erf(x) ladder_erf(x)
#undef erfc
#define erfc(x) ladder_erfc(x)

#endif
