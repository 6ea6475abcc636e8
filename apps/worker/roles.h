// The roles of dsworker: what `dsworker ROLE …` can be asked to do. main.cpp holds the table; each
// role has its own file.
#pragma once

#include "base/text/command_line.h"

namespace dslaunch::worker {

// A role: its arguments start with its own name. Returns the exit code; throws Error for what the
// user or the world causes. stdout is for results only.
int export_main(int argc, char** argv);
int generate_main(int argc, char** argv);
int health_main(int argc, char** argv);
int model_main(int argc, char** argv);
int plan_main(int argc, char** argv);
int train_main(int argc, char** argv);

}  // namespace dslaunch::worker
