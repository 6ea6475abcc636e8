// The part of resolve() that is dslaunch.loss.
#include <utility>
#include <vector>

#include "config/resolve/resolver.h"

namespace dslaunch::config {

namespace {

constexpr const char* kFolderTarget = "targets";  // forward's argument in a folder's model

}  // namespace

// A loss that NAME does not stand for has no use for a key that only others read.
double Resolver::loss_number(const std::string& path, bool is_read, const std::string& readers) {
    if (is_read) return take_number(path);
    if (given(path) != nullptr)
        problem(path, "is only for " + readers + ", and dslaunch.loss.name names none of these");
    return default_value(*find_key(path)).as_double();
}

// The cross entropy that the config names is the one that the folder's model computes.
void Resolver::loss_of_folder() {
    LossConfig& loss = run_config().loss;
    loss.kind = LossKind::kModel;
    if (!loss.target.empty() && loss.target != kFolderTarget)
        run_config().data.columns.emplace(kFolderTarget, loss.target);
    loss.target.clear();
}

void Resolver::loss_mean(const std::string& name) {
    LossConfig& loss = run_config().loss;
    const std::string path = "dslaunch.loss.mean";
    const bool as_transformers = options_.model_is_folder && given(path) == nullptr &&
                                 loss.kind == LossKind::kModel && !run_config().adds_ranks;
    if (as_transformers) {
        loss.mean = LossMean::kToken;
        derive(path, make_value(std::string("token")),
               "a folder of Hugging Face: as transformers' Trainer since 4.46");
        result_.notes.emplace_back(
            "the loss is the mean over all targets of a global batch, as transformers' Trainer has "
            "it; dslaunch.loss.mean micro_batch takes the mean over micro batches");
        return;
    }
    if (take_text(path) == "token") loss.mean = LossMean::kToken;
    if (loss.mean == LossMean::kToken && run_config().adds_ranks)
        problem(
            "gradient_allreduce_op",
            "with dslaunch.loss.mean \"token\" gradients are those of one mean over all tokens, "
            "which no sum over ranks is: use mean");
    if (loss.mean == LossMean::kToken && loss.is_preference())
        problem(path, name + " is a mean over pairs of answers, not over tokens");
}

void Resolver::loss() {
    LossConfig& loss = run_config().loss;
    const std::string name = take_text("dslaunch.loss.name");
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
    if (loss.is_preference() && given(target) == nullptr) {
        loss.target = "targets";
        derive(target, make_value(loss.target), "the column of `dslaunch data prepare`");
    } else {
        loss.target = take_text(target);
    }
    if (options_.model_is_folder && loss.kind == LossKind::kCrossEntropy) loss_of_folder();
    loss_mean(name);
    loss.beta = loss_number("dslaunch.loss.beta", loss.is_preference(), "dpo, ipo, simpo and orpo");
    loss.label_smoothing =
        loss_number("dslaunch.loss.label_smoothing", loss.kind == LossKind::kDpo, "dpo");
    loss.gamma = loss_number("dslaunch.loss.gamma", loss.kind == LossKind::kSimPo, "simpo");
    if (loss.label_smoothing >= 0.5)
        problem("dslaunch.loss.label_smoothing",
                "must be below 0.5: nothing says then which of the two answers is the better one");
}

}  // namespace dslaunch::config
