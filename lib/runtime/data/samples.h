// One opened data file as numbered samples: the interface between data_source.h and the file
// formats. An implementation maps its file and copies rows out of it. Threads: const, any thread.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run/run_config.h"

namespace dslaunch::runtime {

// The data that a model needs: forward's arguments as the lowered graph has them, and the config's
// settings for data and loss.
struct DataRequest {
    config::DataConfig data;
    config::LossConfig loss;  // the last argument is its target, unless the loss is kModel
    std::vector<std::string> arguments;        // forward's, in order
    std::vector<c10::TypePtr> argument_types;  // one per argument

    // Returns true if the last argument is the target of the config's loss.
    [[nodiscard]] bool has_target() const {
        return loss.kind != config::LossKind::kModel && !arguments.empty();
    }
};

// The integers that are allowed: [0, count), and one more value if `also` is set.
struct IndexLimit {
    int64_t count = 0;
    std::optional<int64_t> also = {};  // such as cross entropy's -100, an ignored target
    std::string what = {};             // meaning of an integer: "class", "row of wte.weight"
    bool tokens = false;  // true for token ids: ids of another tokenizer cause a warning
};

// The input for one argument of forward. A batch of B samples has the shape [B] followed by
// sample_shape, and is contiguous on the CPU.
struct DataInput {
    std::string argument;
    c10::ScalarType dtype = c10::ScalarType::Float;
    std::vector<int64_t> sample_shape;

    bool operator==(const DataInput&) const = default;
};

// One data file; see the top of this file.
class Samples {
  public:
    virtual ~Samples() = default;

    // Return the path for messages, and the number of samples. Samples are numbered from 0.
    [[nodiscard]] virtual const std::string& path() const = 0;
    [[nodiscard]] virtual int64_t sample_count() const = 0;
    // Returns one input for each argument of forward, in order.
    [[nodiscard]] virtual const std::vector<DataInput>& inputs() const = 0;
    // Returns the context length of a token file, or 0 for rows.
    [[nodiscard]] virtual int64_t tokens_per_sample() const = 0;
    // Returns new tensors with sample FIRST + offsets[b] in row b. REQUIRES: the samples are in [0,
    // sample_count).
    [[nodiscard]] virtual std::vector<c10::IValue> batch(
        int64_t first, std::span<const int64_t> offsets) const = 0;
    // Returns the column to use as the loss's target if the config names none; empty if there is no
    // such column.
    [[nodiscard]] virtual std::string target_choice() const { return {}; }
    // These checks are explained at DataSource.
    virtual void check_vocabulary(int64_t vocabulary) const = 0;
    virtual void check_indices(size_t input, const IndexLimit& limit) const = 0;
    virtual void check_documents(size_t) const {}
    virtual void check_origin(const std::string&, const std::string&) const {}
};

// These functions throw Error{kInput}, naming PATH, if the file is wrong or does not match forward.
[[nodiscard]] std::unique_ptr<Samples> open_token_samples(const std::string& path,
                                                          const DataRequest& request);
[[nodiscard]] std::unique_ptr<Samples> open_row_samples(const std::string& path,
                                                        const DataRequest& request);

// Returns the names of a row file's columns. Throws the errors of open_row_samples() that concern
// only the file.
[[nodiscard]] std::vector<std::string> row_columns(const std::string& path);

// Throws Error{kInput}, naming PATH, unless every argument is a tensor or an optional tensor.
void check_arguments_are_tensors(const std::string& path, const DataRequest& request);

}  // namespace dslaunch::runtime
