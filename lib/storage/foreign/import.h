// Makes a dslaunch checkpoint from files of other programs: a DeepSpeed checkpoint, or the weights
// of a .safetensors file or Hugging Face folder. Nothing in the source is executed:
// pickle.h reads pickles. Sources are mapped and copied in pieces of a few MiB, so
// memory does not grow with the model. One thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "storage/checkpoint/file_tree.h"

namespace dslaunch::storage {

// The kinds of sources.
enum class ForeignFormat : uint8_t {
    kDeepSpeed,   // a folder with `latest`, or a tag's folder (…/global_stepN)
    kSafetensors  // file, folder with model.safetensors or with model.safetensors.index.json
};
// Returns "deepspeed" or "safetensors".
[[nodiscard]] std::string_view foreign_format_name(ForeignFormat format);

// Returns the format of the files at PATH. Throws Error{kInput} naming PATH and what was looked
// for; for a pickled state_dict (pytorch_model.bin) it also says how to convert it.
[[nodiscard]] ForeignFormat detect_foreign_format(const std::string& path);

// Changes the source's names into the names of the module that will be trained.
struct NameMapping {
    std::string strip;  // removed prefix; all names except names of buffers must have it
    std::string add;    // prefix that is added after the removal
};

// The source, and the place of the new checkpoint.
struct ImportOptions {
    std::string source;  // see ForeignFormat
    std::string tag;     // DeepSpeed: the step's folder; if empty, the folder that `latest` names
    NameMapping names;
    std::string root;  // the folder of step folders (see CheckpointStore); made if missing
    std::vector<std::string> frozen = {};  // see DeepSpeedSource
};

// The checkpoint that was made.
struct ImportReport {
    ForeignFormat format = ForeignFormat::kDeepSpeed;
    std::string writer;  // "DeepSpeed 0.19.8, ZeRO stage 2, 8 ranks"; "safetensors, 2 files"
    std::string folder;  // ROOT/step-N, committed
    int64_t step = 0;    // 0 if the source has only weights
    int64_t tensor_count = 0;
    int64_t numel = 0;        // number of elements in their weights
    bool has_states = false;  // the source had the optimizer's states
    bool is_finite = true;
    Bytes bytes;  // number of bytes written
    // Notes about the source's data that the new checkpoint does not contain, and about values that
    // were derived. One sentence each.
    std::vector<std::string> notes;
};

// Imports a source as a committed checkpoint with the files of one rank. All floating tensors of 16
// bits become fp32 without loss; other tensors keep their dtype. Trained tensors become kTrained,
// with `updates` from the optimizer's own step. If the source has only weights, floating tensors
// become kTrained too, without states and at step 0, and integers and bools become kBuffer.
// Replaces a checkpoint of the same step in ROOT. Throws Error{kInput} naming file and reason for a
// source that is damaged, incomplete or refused, and Error{kDisk} if writing fails. After an error,
// nothing is committed. TREE is the file system that contains ROOT; the source is read from this
// machine's file system.
[[nodiscard]] ImportReport import_checkpoint(FileTree& tree, const ImportOptions& options);

}  // namespace dslaunch::storage
