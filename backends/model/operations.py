"""The operations of one layer, of the embedding and of the head: FLOPs and bytes from the shapes, forward and backward.

FLOPs of a matrix product: 2·m·n·k; its two gradients cost the same each (Kaplan et al. 2020, the 6·N rule). Attention:
2·q·c·(qk + v) per head over the average context c; its backward costs 2.5 forwards because the scores are computed
again (Dao 2023, FlashAttention-2).
"""

from __future__ import annotations

from backends.model.emitter import Batch, element_bytes
from backends.model.experts import FeedForward
from backends.model.shapes import LayerKind, attention_shape, mlp_shape
from backends.ops import Compute, Item

__all__ = ["Batch", "LayerBuilder", "element_bytes"]


class LayerBuilder(FeedForward):
    """Writes the items of a whole layer, of the embedding and of the head, in the order a rank runs them."""

    def forward(self, kind: LayerKind) -> tuple[Item, ...]:
        """A whole layer, forward."""
        self.items.clear()
        self._attention_forward()
        self._mlp_forward(kind)
        return tuple(self.items)

    def backward(self, kind: LayerKind) -> tuple[Item, ...]:
        """A whole layer, backward; a collective stands where its input is ready."""
        self.items.clear()
        self._mlp_backward(kind)
        self._attention_backward()
        return tuple(self.items)

    def cheap_recompute(self, kind: LayerKind) -> tuple[Item, ...]:
        """What selective recomputation repeats before a backward: the attention core, norms and activations."""
        self.items.clear()
        self._norm("recompute_input_norm")
        self._attention_core("recompute_attention")
        self._norm("recompute_post_norm")
        self._activation("recompute_act", self._mlp_width(kind), self.batch.tokens)
        return tuple(self.items)

    # --- attention --------------------------------------------------------------------------------------------------

    def _attention_forward(self) -> None:
        shape, tokens = attention_shape(self.model), self.batch.tokens
        self._norm("input_norm")
        self._enter("attention")
        for linear in shape.linears[:-1]:
            self._linear(linear, tokens)
        heads = shape.heads / self.sharding.tp
        self._elementwise("rope", tokens * heads * shape.qk_dim, 2, 4)
        self._ring("cp_exchange_kv", 1.0)
        self._attention_core("flash_attention")
        self._linear(shape.linears[-1], tokens)
        self._leave("attention")
        self._elementwise("residual_add", self._local_tokens * self.model.hidden_size, 3, 1)

    def _ring(self, name: str, factor: float) -> None:
        """Context parallelism: every rank gathers the keys and values of the whole sequence."""
        if self.sharding.cp > 1:
            width = self._cache_width()
            self._comm(name, "all_gather", "cp", factor * self.element * self.batch.tokens * self.sharding.cp * width)

    def _cache_width(self) -> float:
        shape = attention_shape(self.model)
        return shape.cache_width / min(self.sharding.tp, shape.cache_heads)

    def _core_flops(self) -> float:
        shape = attention_shape(self.model)
        heads = shape.heads / self.sharding.tp
        latent = self.batch.cached and shape.latent_width
        width = 2 * shape.latent_width if latent else shape.qk_dim + shape.v_dim
        return 2 * heads * width * self.batch.tokens * self.batch.context

    def _core_bytes(self) -> float:
        shape = attention_shape(self.model)
        heads = shape.heads / self.sharding.tp
        own = self.batch.tokens * heads * (shape.qk_dim + shape.v_dim)
        read = (self.batch.cached or self.batch.tokens * self.sharding.cp) * self._cache_width()
        return self.element * (own + read)

    def _attention_core(self, name: str) -> None:
        rows = self.batch.tokens * attention_shape(self.model).heads / self.sharding.tp
        shape = (rows, self.batch.context, float(attention_shape(self.model).qk_dim))
        self.items.append(Compute(name, "attention", self._core_flops(), self._core_bytes(), shape))

    def _attention_backward(self) -> None:
        shape, tokens = attention_shape(self.model), self.batch.tokens
        self._enter("attention_grad")
        self._linear_backward(shape.linears[-1], tokens)
        rows = tokens * shape.heads / self.sharding.tp
        size = (rows, self.batch.context, float(shape.qk_dim))
        self.items.append(
            Compute("flash_attention_backward", "attention_backward", 2.5 * self._core_flops(),
                    2.5 * self._core_bytes(), size, launches=3)
        )  # fmt: skip
        if self.sharding.cp > 1:
            self._comm("cp_reduce_kv_grad", "reduce_scatter", "cp",
                       self.element * tokens * self.sharding.cp * self._cache_width())  # fmt: skip
        self._elementwise("rope_backward", rows * shape.qk_dim, 2, 4)
        for linear in reversed(shape.linears[:-1]):
            self._linear_backward(linear, tokens)
        self._leave("attention_grad")
        self._norm("input_norm_backward", 4, 6)
        self._elementwise("residual_add_backward", self._local_tokens * self.model.hidden_size, 3, 1)

    # --- feed-forward -----------------------------------------------------------------------------------------------

    def _mlp_width(self, kind: LayerKind) -> float:
        shape = mlp_shape(self.model, kind)
        shared = sum(linear.inputs for linear in shape.linears if linear.name.endswith("down_proj")) / self.sharding.tp
        routed = self._expert_share() * shape.expert_ffn / self.sharding.expert_tp if shape.experts else 0.0
        return shared + routed

    def _mlp_forward(self, kind: LayerKind) -> None:
        shape = mlp_shape(self.model, kind)
        self._norm("post_attention_norm")
        if shape.experts:
            self._moe_forward()
        else:
            self._enter("mlp")
            self._dense_forward(shape.linears)
        self._leave("mlp")
        self._elementwise("residual_add_mlp", self._local_tokens * self.model.hidden_size, 3, 1)

    def _mlp_backward(self, kind: LayerKind) -> None:
        shape = mlp_shape(self.model, kind)
        if shape.experts:
            self._moe_backward()
        else:
            self._enter("mlp_grad")
            self._dense_backward(shape.linears)
        self._leave("mlp_grad")
        self._norm("post_attention_norm_backward", 4, 6)
        self._elementwise("residual_add_mlp_backward", self._local_tokens * self.model.hidden_size, 3, 1)

    # --- first and last stage ---------------------------------------------------------------------------------------

    def embedding(self) -> tuple[Item, ...]:
        """Look the tokens up; the rows of the table are split over tensor-parallel ranks."""
        self.items.clear()
        self._elementwise("embedding", self.batch.tokens * self.model.hidden_size, 2, 3, "embedding")
        self._leave("embedding")
        return tuple(self.items)

    def embedding_backward(self) -> tuple[Item, ...]:
        """Scatter-add the gradients into the table."""
        self.items.clear()
        self._enter("embedding_grad")
        self._elementwise("embedding_backward", self.batch.tokens * self.model.hidden_size, 3, 3, "embedding")
        return tuple(self.items)

    def head(self, loss: bool) -> tuple[Item, ...]:
        """Final norm and logits, then the loss (training) or the gathering of logits and sampling (inference)."""
        self.items.clear()
        tokens = self.batch.tokens if loss else self.batch.sampled
        self._norm("final_norm")
        self._enter("head")
        columns = self.model.vocab_size / self.sharding.tp
        self._gemm("lm_head", tokens, columns, self.model.hidden_size)
        if loss:
            self._elementwise("cross_entropy", tokens * columns, 6, 5, "loss")
            if self.sharding.tp > 1:
                self._comm("cross_entropy_all_reduce", "all_reduce", "tp", 4 * 3 * tokens)
        else:
            if self.sharding.tp > 1:
                self._comm("logits_all_gather", "all_gather", "tp", self.element * tokens * self.model.vocab_size)
            self._elementwise("sample", tokens * self.model.vocab_size, 3, 4, "loss")
        return tuple(self.items)

    def head_backward(self) -> tuple[Item, ...]:
        """Gradient of the loss, of the head and of the final norm."""
        self.items.clear()
        tokens, columns = self.batch.tokens, self.model.vocab_size / self.sharding.tp
        self._elementwise("cross_entropy_backward", tokens * columns, 4, 3, "loss")
        self._gemm("lm_head_dgrad", tokens, self.model.hidden_size, columns)
        self._gemm("lm_head_wgrad", columns, self.model.hidden_size, tokens)
        self._leave("head_grad")
        self._norm("final_norm_backward", 4, 6)
        return tuple(self.items)
