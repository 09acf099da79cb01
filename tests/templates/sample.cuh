/* sample.cuh: what a template may have, for tests/templates. */

$part sample
/* A function.
 *
 *   text   name    of the function
 *   text?  why     a comment, or none
 *   lines  body    its statements
 *   lines? behind  and those behind them
 *   if     loops   it goes round
 *   text?  times   a number that only a loop needs
 */
//$ This line is the reader's alone.
void ${name}_of(int n) {
$if why
    // "$why", with a backslash: \n
$end

$if loops
    for (int i = 0; i < $times; i++) {
        $body
$if behind
        $behind
$else
        nothing();
$end
    }
$else
    $body
$end
}

$part sample_empty
/* It has no hole. */
return;
