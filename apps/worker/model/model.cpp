// dsworker model new|import|merge|show: makes, converts and shows models without Python.
#include "worker/model/model_commands.h"
#include "worker/roles.h"
#include "worker/subcommands.h"

namespace dslaunch::worker {

int model_main(int argc, char** argv) {
    CommandLine app({.does = "Makes, converts and merges models, and shows what a model contains.",
                     .examples = {"dslaunch model new gpt --size tiny -o train.pt",
                                  "dslaunch model import Qwen2.5-0.5B -o train.pt",
                                  "dslaunch model show train.pt"},
                     .docs = "docs/guide/models.md"},
                    "dslaunch model");
    const Subcommands commands = {{"new", add_model_new(app)},
                                  {"import", add_model_import(app)},
                                  {"merge", add_model_merge(app)},
                                  {"show", add_model_show(app)}};
    return run_subcommand(app, commands, argc, argv);
}

}  // namespace dslaunch::worker
