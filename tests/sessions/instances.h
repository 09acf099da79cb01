/* The instances that run.sh builds; the first is broken and refused, the third is of f64. */
#define INSTANCES_OF(F) F(e79) F(lstm) F(gru) F(learned) F(conv4_silu) F(delta) F(parts_of_rows)
