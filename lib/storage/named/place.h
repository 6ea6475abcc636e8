// Says what a path that a user named is: a model, a run, a checkpoint, an adapter, a file of one of
// these, or none. Decided by the names in a folder and beside a file; weights are not read. All
// commands refuse a wrong path with the words of this file. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch::storage {

// The kinds of places. "Run" means the --output folder of a training job.
enum class PlaceKind : uint8_t {
    kMissing,
    // Folders:
    kModel,        // config.json and weights, which a run's folder has too
    kConfigOnly,   // config.json without weights
    kArchiveRun,   // a run that trained an archive: model.pt
    kUnsavedRun,   // a run without weights, but with checkpoints
    kEmptyRun,     // a run without weights and checkpoints
    kAdapter,      // an adapter, or a run that trained one
    kCheckpoint,   // a step-N folder
    kCheckpoints,  // step-N folders
    kDeepSpeed,    // a checkpoint of DeepSpeed, or its folder of a step
    kHubCache,     // a model's folder in Hugging Face's cache
    kPartial,      // layers that an interrupted `compress` keeps
    kWeights,      // model.safetensors without config.json
    kModels,       // contains models
    kEmpty,        // contains nothing
    kFolder,       // any other folder
    // Files:
    kFileOfModel,
    kFileOfAdapter,
    kFileOfCheckpoint,
    kFile
};

// The need of a command where the path was given.
enum class PlaceUse : uint8_t {
    kModel,       // a model with its weights
    kForm,        // a model, which needs no weights
    kTokenizer,   // the folder of a model with a tokenizer
    kAdapter,     // a trained adapter
    kCheckpoint,  // dslaunch's checkpoints
    kForeign,     // the checkpoint or weights of another program, to import
    kResume,      // the --output folder of a run to continue
    kConfig       // a ds_config.json
};

// A path, and what it is.
struct Place {
    PlaceKind kind = PlaceKind::kMissing;
    std::string path;   // as the user wrote it
    std::string whole;  // the model, adapter, checkpoint or run that PATH is a part of; "": none
    std::vector<std::string> models;  // kModels, kHubCache: the models in it
};

// Returns what PATH is.
[[nodiscard]] Place place_at(const std::string& path);

// Returns "is a checkpoint of the run RUN" and, if there is a way, "; " and the commands that make
// what USE needs of PLACE. A command in the text works as it is written, apart from words in
// capitals.
[[nodiscard]] std::string place_text(const Place& place, PlaceUse use);

// Throws Error{CODE} with "PATH: place_text(); MORE".
[[noreturn]] void refuse_place(const Place& place, PlaceUse use, ExitCode code = ExitCode::kInput,
                               const std::string& more = "");

// Throws Error{kInput} if PATH is a file of a model, an adapter or a checkpoint, which cannot be
// used as a model by itself.
void refuse_part(const std::string& path);

// The model that an adapter was trained with.
struct BaseModel {
    std::string name;  // as the adapter's config names it; "": it names none
    std::string path;  // where the model is now; "": not found
    std::string near;  // if not found: a model with a similar name; "": there is none
};

// Returns the base of the adapter at PATH, an adapter or the run that trained it. A name that is a
// relative path is looked for in the current folder, and where the run was started.
[[nodiscard]] BaseModel base_of_adapter(const std::string& path);

// Returns the model that the run in folder RUN has trained, as its run.json says; "" if that is
// unknown, or the model is not there any more.
[[nodiscard]] std::string target_of_run(const std::string& run);

// Returns the model whose name is the most similar to PATH, which does not exist; "" if there is
// none. Folders of adapters and data are never returned.
[[nodiscard]] std::string near_model(const std::string& path);

}  // namespace dslaunch::storage
