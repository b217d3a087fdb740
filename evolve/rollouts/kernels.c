/* The native kernels, all in one compilation unit, so that generic functions are inlined into the step of each network and
 * each exact task. setup.py lists the headers of networks and tasks for the compiler, which includes them before this file.
 *
 * The unit lies in the package of rollouts, because the generic kernels of evolve.numerics know no network and no task. The
 * built library, evolve.numerics._kernels, lies where it is loaded. */
#include "build.h"
#include "columns.h"
#include "fingerprints.h"
#include "normalization.h"
#include "outer.h"
#include "perturbation.h"
#include "play.h"
#include "sha256.h"
