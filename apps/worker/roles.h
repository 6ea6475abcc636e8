// The roles of dsworker: the words that `dsworker ROLE …` accepts. main.cpp contains the table;
// each role has its own file.
#pragma once

#include "base/text/command_line.h"

namespace dslaunch::worker {

// The help of --op-library, an option of each role that loads a model.
inline constexpr const char* kOpLibraryHelp =
    "load this library of operators (.so), e.g. torchvision's, before the model; repeatable";

// The help of --trust-model, an option of each role that loads a model.
inline constexpr const char* kTrustModelHelp =
    "let the model's code use operators that access files, memory or processes";

// Each function runs one role. Its arguments begin with the role's name. It returns the exit code,
// and throws Error for problems that the user or the machine causes. Only results go to stdout.
int compress_main(int argc, char** argv);
int data_main(int argc, char** argv);
int eval_main(int argc, char** argv);
int export_main(int argc, char** argv);
int generate_main(int argc, char** argv);
int health_main(int argc, char** argv);
int model_main(int argc, char** argv);
int plan_main(int argc, char** argv);
int serve_main(int argc, char** argv);
int train_main(int argc, char** argv);

}  // namespace dslaunch::worker
