// One opened data file as numbered samples: the seam between data_source.h and the file formats.
// An implementation maps its file and copies rows out of it. Threads: const, any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_request.h"

namespace dslaunch::runtime {

// The input of one argument of forward. A batch of B samples is [B] + sample_shape, contiguous,
// cpu.
struct DataInput {
    std::string argument;
    c10::ScalarType dtype = c10::ScalarType::Float;
    std::vector<int64_t> sample_shape;

    bool operator==(const DataInput&) const = default;
};

class Samples {
  public:
    virtual ~Samples() = default;

    [[nodiscard]] virtual const std::string& path() const = 0;
    [[nodiscard]] virtual int64_t sample_count() const = 0;
    // Returns one input for each argument of forward, in order.
    [[nodiscard]] virtual const std::vector<DataInput>& inputs() const = 0;
    // Returns the context of a token file, 0 for rows.
    [[nodiscard]] virtual int64_t tokens_per_sample() const = 0;
    // Returns new tensors with samples FIRST + offsets[b] in row b. REQUIRES: all in [0,
    // sample_count).
    [[nodiscard]] virtual std::vector<c10::IValue> batch(
        int64_t first, std::span<const int64_t> offsets) const = 0;
    // Returns the column that is the loss's target where the config names none; empty: none is.
    [[nodiscard]] virtual std::string target_choice() const { return {}; }
    // These checks are DataSource's.
    virtual void check_vocabulary(int64_t vocabulary) const = 0;
    virtual void check_indices(size_t input, const IndexLimit& limit) const = 0;
    virtual void check_documents(size_t) const {}
    virtual void check_origin(const std::string&) const {}
};

// These functions throw Error{kInput} naming PATH if the file or its fit to forward is wrong.
[[nodiscard]] std::unique_ptr<Samples> open_token_samples(const std::string& path,
                                                          const DataRequest& request);
[[nodiscard]] std::unique_ptr<Samples> open_row_samples(const std::string& path,
                                                        const DataRequest& request);

// The names of a row file's columns. Throws as open_row_samples() does for the file alone.
[[nodiscard]] std::vector<std::string> row_columns(const std::string& path);

// Throws Error{kInput} naming PATH unless every argument is a tensor (or an optional one).
void check_arguments_are_tensors(const std::string& path, const DataRequest& request);

}  // namespace dslaunch::runtime
