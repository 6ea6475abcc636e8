// Writes the weights of a checkpoint for other programs: model.safetensors, or shards of it with
// model.safetensors.index.json, in Hugging Face's form. Tensors are streamed: the memory needed
// does not grow with the model, only with the largest tensor that is not in row-major order. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/dtype.h"
#include "storage/export/tensor_source.h"
#include "storage/huggingface/folder_files.h"

namespace dslaunch::storage {

// The place and the form of the files, and the tensors to write.
struct ExportOptions {
    std::string out;                 // folder, made if missing; or a file NAME.safetensors
    std::optional<DType> dtype;      // converts floating tensors to F32, BF16 or F16 if set
    std::optional<Bytes> shard_max;  // one file if not set. A larger tensor gets its own file
    bool writes_all_names = true;    // false: writes a tied tensor under only one of its names
    bool excludes_frozen = false;
    bool is_for_transformers = false;      // leaves out buffers that transformers computes
    std::vector<std::string> exclude;      // globs: leaves out tensors by the source's names
    std::string strip_prefix, add_prefix;  // prefixes of names; all parameters must have
                                           // strip_prefix
    bool is_forced = false;                // replaces an earlier model in OUT
};

// The files that were written.
struct ExportReport {
    std::vector<std::string> files;     // paths, the index last
    std::vector<std::string> names;     // tensors' names, in the order of files
    std::vector<std::string> left_out;  // buffers and excluded tensors, by the source's names
    Bytes bytes;                        // the tensors' bytes
};

// Makes OUT's folder. Throws what export_weights() throws if OUT cannot be used.
void check_export_place(const ExportOptions& options);
// Writes the files; the index is last. Each file appears completely or not at all. Throws
// Error{kUsage} if a name does not begin with strip_prefix, if two tensors would have the same
// name, or if nothing is left to write. Throws Error{kInput} if OUT contains a model and is_forced
// is false, or if a value would become infinite in DTYPE. Throws Error{kDisk} if writing fails; the
// message has the path, and for a full disk the bytes that are needed and free. Also throws what
// SOURCE throws.
ExportReport export_weights(const TensorSource& source, const ExportOptions& options);

// Reads "5GB" as 5 * 10^9 bytes, "5GiB" as 5 * 2^30; also TB, GB, MB, KB, or a plain number of
// bytes from 100,000 on. Throws Error{kUsage} naming OPTION.
[[nodiscard]] Bytes parse_shard_bytes(const std::string& text, const char* option);

// Throws Error{kInput} unless FROM is a folder with a config.json.
void check_model_config(const std::string& from);
// Throws Error{kInput} naming the file if TO contains a file that accompanies a Hugging Face
// model's weights, and FROM has no file of that name. Such a file would stay in TO, although it
// belongs to another model. TO may be missing.
void require_room_for_config(const std::string& from, const std::string& to);
// Returns the names that must not exist in the output folder of a training of MODEL. If MODEL is a
// folder, these are the files that the run copies from it. If MODEL is an archive, this is
// config.json, because programs would take the result for a Hugging Face folder. Returns no name if
// only ADAPTERS are trained.
[[nodiscard]] std::vector<std::string> config_files_of_result(const std::string& model,
                                                              bool adapters);
// Throws Error{kInput} naming the file if copy_model_config() would replace a file and FORCE is
// false.
void require_new_config(const std::string& from, const std::string& to, bool force);
// Copies the files that accompany a Hugging Face model's weights (config.json, tokenizer*, …) from
// FROM to the folder TO: byte for byte, except for the changes of config_for_weights() in
// config.json. Returns their names. Throws what check_model_config() throws, and Error{kDisk}.
std::vector<std::string> copy_model_config(const std::string& from, const std::string& to);
// Copies the files of copy_model_config() except config.json. Returns their names.
std::vector<std::string> copy_files_beside_config(const std::string& from, const std::string& to);
// Copies only the files that convert text to tokens and back. Returns their names.
std::vector<std::string> copy_text_files(const std::string& from, const std::string& to);

}  // namespace dslaunch::storage
