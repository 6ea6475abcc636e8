// Reads a universal checkpoint of DeepSpeed, which ds_to_universal.py makes of another one: a
// folder for each parameter, with a file for its weights and for each of its states, whole. Copies
// of the model's files beside them have the rest. Files stay mapped; nothing is executed. Threads:
// one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/foreign/deepspeed_model.h"
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
    void find_parameters();
    void read_optimizer();
    void choose_states();
    [[nodiscard]] std::vector<std::string> in_order() const;
    void add_parameter(const std::string& name, const Files& files);
    [[nodiscard]] TorchTensor value_in(const std::string& path, const std::string& name);
    [[nodiscard]] int64_t updates_in(const Files& files);
    void fill_states();
    void refuse_split_others() const;
    void check_weights() const;

    std::map<std::string, Files> parameters_;
    std::map<std::string, std::vector<int64_t>> shapes_;  // of trained parameters, by name
    std::set<std::string> untrained_;                     // buffers, shared names
    std::vector<std::unique_ptr<TorchFile>> files_;
    int64_t optimizer_updates_ = 0;  // stage 3 has one count for all parameters
    std::vector<std::byte> zeros_;
};

}  // namespace dslaunch::storage
