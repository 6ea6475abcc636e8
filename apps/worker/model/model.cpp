// dsworker model new|import|merge|show: archives that are made and looked into without Python.
#include "storage/huggingface/named_place.h"
#include "worker/model/model_import.h"
#include "worker/model/model_merge.h"
#include "worker/model/model_new.h"
#include "worker/model/model_show.h"
#include "worker/roles.h"

namespace dslaunch::worker {

int model_main(int argc, char** argv) {
    CommandLine app({.does = "Makes, converts and merges models, and shows what a model holds.",
                     .examples = {"dslaunch model new gpt --size tiny -o train.pt",
                                  "dslaunch model import Qwen2.5-0.5B -o train.pt",
                                  "dslaunch model show train.pt"},
                     .docs = "docs/guide/models.md"},
                    "dslaunch model");
    NewArguments made;
    ImportArguments imported;
    MergeArguments merged;
    ShowArguments shown;
    add_new(app, made);
    add_import(app, imported);
    add_merge(app, merged);
    add_show(app, shown);
    if (argc > 1) storage::refuse_download(argv[1], argc > 2 ? argv[2] : "");
    if (!app.parse({argv + 1, argv + argc})) return 0;
    if (app.chose("new")) run_new(made);
    if (app.chose("import")) run_import(imported);
    if (app.chose("merge")) run_merge(merged);
    if (app.chose("show")) run_show(shown);
    return 0;
}

}  // namespace dslaunch::worker
