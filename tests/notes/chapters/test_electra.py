"""Claims about ELECTRA fail when a part of it is broken."""

from claims import ClaimBreaks
from torch import nn
from torch.nn import functional as F

from polyhead.models import electra as model
from polyhead.models.electra import Electra, ElectraOutput
from polyhead.notes.chapters import electra_claims as electra

breaks = ClaimBreaks("electra")
forward, build = Electra.forward, Electra.__init__


@breaks(Electra, "forward", at_least="M1 M5")
def masked_tokens_labelled_as_replaced(self, ids, blanked, chosen):
    return forward(self, ids, blanked, chosen)._replace(replaced=chosen)


@breaks(Electra, "forward", exactly="M4 M7")
def gradient_through_samples(self, ids, blanked, chosen):
    generated = self.generator.fill(blanked, chosen)
    forged = ids.masked_scatter(chosen, model.draw(generated, never=[0]))
    sampled = F.gumbel_softmax(generated, hard=True)  # differentiable samples
    suspicion = self.suspect(forged) + (sampled * generated).mean()
    return ElectraOutput(suspicion, generated, forged, forged != ids)


@breaks(model, "draw", at_least="M1")
def constant_instead_of_samples(logits):
    return logits.argmax(-1) * 0 + 5


@breaks(Electra, "__init__", at_least="M3")
def models_that_share_nothing(self, config):
    build(self, config)
    self.discriminator = model.BERTEncoder(config.discriminator)


@breaks(Electra, "__init__", at_least="M4")
def untied_output_layer(self, config):
    build(self, config)
    weight = self.generator.to_logits.weight
    self.generator.to_logits.weight = nn.Parameter(weight.detach().clone())


@breaks(model, "narrowed", at_least="M5 M6")
def generator_of_full_size(stack, _):
    return stack


breaks.add("another_weight_of_the_loss", (electra, "SPOTTING_WEIGHT", 1.0), exactly="M9")
test_breaks_are_detected = breaks.test()
