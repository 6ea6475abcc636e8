// The Resolver is resolve() in the making: it reads values through the schema, records each with
// its origin and collects problems. Internal to lib/config: resolver.cpp holds what the parts have
// in common, resolve.cpp and resolve_*.cpp hold the parts of the run config. One thread; lives for
// one call of resolve().
#pragma once

#include "config/resolve/resolved.h"
#include "config/schema/schema.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dslaunch::config {

struct OffloadSection;

// The texts of VALUE, one string or a list of strings.
[[nodiscard]] std::vector<std::string> texts_of(const Value& value);

class Resolver {
  public:
    // REQUIRES: CONFIG outlives the resolver.
    Resolver(const TrainConfig& config, const ResolveOptions& options);

    // REQUIRES: called once.
    [[nodiscard]] Resolved run();

  private:
    RunConfig& run_config() { return result_.config; }

    // Everything below names a key by its own name; problems and notes say it as it was written.
    void problem(const std::string& path, std::string message);
    void record(const std::string& path, Value value, Origin origin, bool unsaid = false);
    // Records that PATH holds VALUE because of FORMULA, not because of what was said of it.
    void derive(const std::string& path, Value value, const std::string& formula,
                bool unsaid = false);

    // The value that the user gave, nullptr for nothing, null and auto. A value of the wrong type
    // has been reported.
    [[nodiscard]] const Value* given(const std::string& path);
    [[nodiscard]] bool is_auto(const std::string& path);
    // The value that Hugging Face's Trainer has in the place of `auto` at PATH, added to the note
    // on autos; nothing where the Trainer leaves PATH alone.
    std::optional<Value> trainer_value(const std::string& path);
    Value take_auto(const std::string& path);

    // The name that PATH was given under: its own, or another one that the schema has for it. A
    // problem, once, when both were.
    std::string written(const std::string& path);

    // The value that holds, recorded: given, else the schema's default.
    Value take(const std::string& path);
    int64_t take_integer(const std::string& path) { return as_integer(take(path)); }
    double take_number(const std::string& path) { return take(path).as_double(); }
    bool take_bool(const std::string& path) { return take(path).boolean; }
    std::string take_text(const std::string& path) { return take(path).text; }
    std::vector<std::string> take_texts(const std::string& path) { return texts_of(take(path)); }
    static int64_t as_integer(const Value& value);

    // Adds a printed line: TEXT is said of what was given at PATH.
    void note(const std::string& path, const std::string& text);
    // The same as a warning: it is likely to be a mistake.
    void warn(const std::string& path, const std::string& text);
    [[nodiscard]] std::string said_of(const std::string& path, const std::string& text);
    // Adds a note where something was said of PATH: it has no effect in this run, because of
    // REASON.
    void unread(const std::string& path, const std::string& reason);
    void note_autos();
    void note_begun();
    void note_ignored(const std::string& path, const std::string& name, const Value& value);
    void note_unknown();
    void note_section(const KeySpec& key, const std::string& path, const Value& value);
    void collect_notes(const std::string& path, const Value& value);

    // resolve.cpp
    void pipeline();
    int64_t take_ranks(const std::string& path);
    void chunks();
    void first_segments();
    void tensor();
    void tensor_rules();
    void batch();
    void check_micro_steps();
    void batch_unsolved(int64_t ranks);
    void solve_batch(int64_t ranks);
    void data();
    void clipping();
    void training();
    void steps();
    void save_via();

    // resolve_optimizer.cpp
    void optimizer();
    void adam(bool named_adamw);
    void one_bit(OptimizerKind kind);
    void compression();
    void sgd();
    void adagrad();
    void lion();
    void lamb();
    void ratio_bounds(const std::string& what, double& least, double& largest, bool min_first);
    void muon();
    void adafactor();
    void relative_step();
    void betas();
    // Two decays at PATH; a problem, and nothing, where VALUE is none.
    std::optional<Betas> betas_of(const std::string& path, const Value& value);
    void parameter_groups();
    void moments_in_memory();
    void parameter_group(const std::string& path, const Value& value);
    // The number given at PATH, else VALUE, the default of WHOSE optimizer where the schema has
    // another.
    double number_or(const std::string& path, double value, const std::string& whose);
    int64_t integer_or(const std::string& path, int64_t value, const std::string& whose);

    // resolve_usual.cpp
    [[nodiscard]] bool takes_usual_batch();
    void usual_batch(int64_t ranks);
    [[nodiscard]] double usual_rate() const;
    [[nodiscard]] std::string usual_text() const;
    double take_rate();
    void usual_clipping();
    void check_rate();
    void choose(const std::string& text) { chosen_.push_back(text); }
    void note_chosen();

    // resolve_scheduler.cpp
    void scheduler();
    WarmupType take_warmup_type();
    void warmup(const std::string& type);
    void cosine();
    void one_cycle();
    void range_test();
    void ratio_schedule(const std::string& type);
    void total_steps();

    // resolve_loss.cpp
    void loss();
    void loss_of_folder();
    void loss_mean(const std::string& name);
    double loss_number(const std::string& path, bool is_read, const std::string& readers);

    // resolve_lora.cpp
    void lora();

    // resolve_precision.cpp
    void precision();
    bool takes_weights_type();
    bool take_half(const std::string& path, DType dtype, const std::string& other);
    void without_masters();
    void torch_autocast();
    void loss_scale();
    void dynamic_loss_scale();
    void kept_types();
    void sum_type();

    // resolve_zero.cpp
    void zero();
    void stage_3_numbers();
    void shard_kind();
    void shard_whole_tensors(const std::string& path);
    void reduce_when();

    // resolve_wire.cpp
    void wire();
    void gradient_type();
    void autocast_modules();
    void before_rounding();
    WireChoice take_packing(const std::string& path, int64_t first_stage);
    void host_copies();
    void error_feedback();
    void comms_logger();
    void unknown_operation(const std::string& path, const std::string& name);

    // resolve_lagging.cpp
    void lagging();
    void lag_intervals();
    int64_t lag_number(const std::string& name, int64_t derived, const std::string& formula);
    void check_lagging();

    // resolve_offload.cpp
    void offload();
    OffloadDevice offload_device(const OffloadSection& section);
    void offload_folders();
    void optimizer_portions();
    void parameter_portions();
    void placement();
    void cache();
    void pin_memory();
    void disk_requests();
    void transfer_formats();

    const std::string name_;  // the config's
    const Value root_;        // the config, old forms of sections in their new ones
    ResolveOptions options_;
    Resolved result_;
    std::set<std::string> named_twice_;       // reported
    std::vector<std::string> autos_;          // "KEY VALUE"
    std::vector<std::string> chosen_;         // "lr 2e-05 (--lr)"
    std::vector<std::string> unknown_names_;  // ignored, and none of the training
    Origin unknown_origin_;                   // of the first of them
};

}  // namespace dslaunch::config
