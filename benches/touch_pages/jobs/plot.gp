set terminal svg
set output "/dev/null"
set samples 20000
set isosamples 50
plot sin(x) * x, besj0(x), lgamma(abs(x) + 1)
set samples 50
splot sin(x) * cos(y) with pm3d
