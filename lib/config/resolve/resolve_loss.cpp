// Resolves the loss: dslaunch.loss.
#include <utility>
#include <vector>

#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {

namespace {

constexpr const char* kFolderTarget = "targets";  // forward's argument in a folder's model

// Reads a key that only some losses use. Reports a problem if it was given for another loss.
double loss_number(KeyReader& keys, const std::string& path, bool is_read,
                   const std::string& readers) {
    if (is_read) return keys.take_number(path);
    if (keys.has(path))
        keys.problem(path, "is only for dslaunch.loss.name " + readers + ": remove the key");
    return default_value(*find_key(path)).as_double();
}

// Sets the loss for a Hugging Face folder: the model's forward computes the cross entropy. If the
// config names a target column, passes this column to forward's argument for targets.
void loss_of_folder(RunConfig& run) {
    LossConfig& loss = run.loss;
    loss.kind = LossKind::kModel;
    if (!loss.target.empty() && loss.target != kFolderTarget)
        run.data.columns.emplace(kFolderTarget, loss.target);
    loss.target.clear();
}

void loss_mean(KeyReader& keys, RunConfig& run, const std::string& name) {
    LossConfig& loss = run.loss;
    const std::string path = "dslaunch.loss.mean";
    const bool as_transformers = keys.options().model_is_folder && !keys.has(path) &&
                                 loss.kind == LossKind::kModel && !run.adds_ranks;
    if (as_transformers) {
        loss.mean = LossMean::kToken;
        keys.derive(
            path, make_value(std::string("token")),
            "as in transformers' Trainer since 4.46, because the model is a Hugging Face folder");
        keys.add_note(
            "the loss is the mean over all targets of a global batch, as in transformers' Trainer; "
            "dslaunch.loss.mean micro_batch uses the mean over micro batches");
        return;
    }
    if (keys.take_text(path) == "token") loss.mean = LossMean::kToken;
    if (loss.mean == LossMean::kToken && run.adds_ranks)
        keys.problem("gradient_allreduce_op",
                     "`sum` cannot be used with dslaunch.loss.mean \"token\", which takes one mean "
                     "over all tokens: use mean");
    if (loss.mean == LossMean::kToken && loss.is_preference())
        keys.problem(path, name + " is a mean over pairs of answers, not over tokens");
}

}  // namespace

void resolve_loss(KeyReader& keys, RunConfig& run) {
    LossConfig& loss = run.loss;
    const std::string name = keys.take_text("dslaunch.loss.name");
    const std::vector<std::pair<std::string, LossKind>> losses = {
        {"cross_entropy", LossKind::kCrossEntropy},
        {"mse", LossKind::kMse},
        {"l1", LossKind::kL1},
        {"bce_with_logits", LossKind::kBceWithLogits},
        {"dpo", LossKind::kDpo},
        {"ipo", LossKind::kIpo},
        {"simpo", LossKind::kSimPo},
        {"orpo", LossKind::kOrpo}};
    for (const auto& [known, kind] : losses)
        if (known == name) loss.kind = kind;
    const std::string target = "dslaunch.loss.target";
    if (loss.is_preference() && !keys.has(target)) {
        loss.target = "targets";
        keys.derive(target, make_value(loss.target),
                    "the column that `dslaunch data prepare` writes");
    } else {
        loss.target = keys.take_text(target);
    }
    if (keys.options().model_is_folder && loss.kind == LossKind::kCrossEntropy) loss_of_folder(run);
    loss_mean(keys, run, name);
    loss.beta =
        loss_number(keys, "dslaunch.loss.beta", loss.is_preference(), "dpo, ipo, simpo and orpo");
    loss.label_smoothing =
        loss_number(keys, "dslaunch.loss.label_smoothing", loss.kind == LossKind::kDpo, "dpo");
    loss.gamma = loss_number(keys, "dslaunch.loss.gamma", loss.kind == LossKind::kSimPo, "simpo");
    if (loss.label_smoothing >= 0.5)
        keys.problem("dslaunch.loss.label_smoothing",
                     "must be below 0.5: otherwise the pairs do not tell which of the two answers "
                     "is better");
}

}  // namespace dslaunch::config
