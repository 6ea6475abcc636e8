// Reads a universal checkpoint, which ds_to_universal.py makes from a DeepSpeed checkpoint. It has
// a folder for each parameter. The folder has one file with the whole parameter's weights, and one
// for each of its states. All else is in copies of the model's files, next to these folders. Files
// stay mapped; nothing is executed. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/foreign/deepspeed_model.h"
#include "storage/foreign/split_rules.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// Returns true if FOLDER is a universal checkpoint.
[[nodiscard]] bool is_universal(const std::string& folder);

// An open universal checkpoint.
class UniversalSource : public DeepSpeedModel {
  public:
    // Throws Error{kInput} naming the file and its fault: files are missing or do not fit each
    // other, or the optimizer is not one whose states are read.
    explicit UniversalSource(const std::string& folder);

  private:
    // The files of a parameter, by what they contain: "fp32", "exp_avg", …
    using Files = std::map<std::string, std::string>;

    void open_models();
    void open_others();
    void find_shapes(const TorchFile& file);
    void find_parameters();
    void read_optimizer();
    void choose_states();
    [[nodiscard]] std::vector<std::string> in_order() const;
    void add_parameter(const std::string& name, const Files& files);
    [[nodiscard]] TorchTensor value_in(const std::string& path, const std::string& name);
    [[nodiscard]] int64_t updates_in(const Files& files);
    [[nodiscard]] std::vector<int64_t> shape_of_weights(const std::string& path,
                                                        const std::string& name,
                                                        const TorchTensor& weights,
                                                        bool has_states) const;
    void fill_states();
    void refuse_split_others();
    void check_weights() const;

    std::map<std::string, Files> parameters_;
    std::map<std::string, std::vector<int64_t>> shapes_;  // of trained parameters, by name
    std::set<std::string> untrained_;                     // buffers, shared names
    std::vector<std::unique_ptr<TorchFile>> files_;
    // The files of the other model ranks, which contain their parts of the model.
    std::vector<std::unique_ptr<TorchFile>> others_;
    size_t tensor_ranks_ = 1;  // how many model ranks have parts of the same parameters
    std::set<std::string> buffers_, frozen_;
    std::unique_ptr<SplitRules> rules_;
    int64_t optimizer_updates_ = 0;  // of all parameters; 0 if each has its own count
    std::vector<std::byte> zeros_;
};

}  // namespace dslaunch::storage
