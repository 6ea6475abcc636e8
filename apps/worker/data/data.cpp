// dsworker data prepare|show|stats: makes rows of tokens from lines of text, and shows such rows.
#include "worker/data/data_commands.h"
#include "worker/roles.h"
#include "worker/subcommands.h"

namespace dslaunch::worker {

int data_main(int argc, char** argv) {
    CommandLine app({.does = "Turns text and chats into rows of tokens, and shows them.",
                     .examples = {"dslaunch data prepare chats.jsonl --model DIR "
                                  "-o r.safetensors"},
                     .docs = kDataDocs},
                    "dslaunch data");
    const Subcommands commands = {{"prepare", add_data_prepare(app)},
                                  {"show", add_data_show(app)},
                                  {"stats", add_data_stats(app)}};
    return run_subcommand(app, commands, argc, argv);
}

}  // namespace dslaunch::worker
