/* The native kernels, all in one compilation unit.
 *
 * It lies with the rollouts, above the generic kernels, because it includes those of each network and each exact task: the
 * package of portable arithmetic knows none of them, although the built library, evolve.numerics._kernels, lies there,
 * where it is loaded. It is one unit so that the generic functions are inlined into the step of each network and task.
 */
#include "../numerics/kernels/lanes.h"
#include "../numerics/kernels/build.h"
#include "../numerics/kernels/exact.h"
#include "../numerics/kernels/normal.h"
#include "../numerics/kernels/philox.h"
#include "../numerics/kernels/draws.h"
#include "../numerics/kernels/perturbation.h"
#include "../numerics/kernels/columns.h"
#include "../numerics/kernels/sums.h"
#include "../numerics/kernels/fingerprints.h"
#include "../numerics/kernels/normalization.h"

#include "../networks/kernels/steps.h"
#include "../networks/kernels/hebbian_dag.h"
#include "../networks/kernels/hebbian_lstm.h"
#include "../networks/kernels/layers.h"
#include "../networks/kernels/plastic_mlp.h"

#include "../environments/kernels/tasks.h"
#include "../environments/kernels/pcg64.h"
#include "../environments/kernels/bodies.h"
#include "../environments/kernels/collision.h"
#include "../environments/kernels/impulses.h"
#include "../environments/kernels/impact.h"
#include "../environments/kernels/island.h"
#include "../environments/kernels/worlds.h"
#include "../environments/kernels/acrobot.h"
#include "../environments/kernels/bandit.h"
#include "../environments/kernels/bipedal_walker.h"
#include "../environments/kernels/cart_pole.h"
#include "../environments/kernels/cues.h"
#include "../environments/kernels/lunar_lander.h"
#include "../environments/kernels/mountain_car.h"
#include "../environments/kernels/pendulum.h"
#include "../environments/kernels/reversal.h"
#include "../environments/kernels/t_maze.h"

#include "kernels/rows.h"
#include "kernels/play.h"
