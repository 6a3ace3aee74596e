(* Clipped products: what ClippedProducts.v follows from. *)

From Proofs Require Import Vectors.

(* The inequality behind both bounds. A = |q|^2, B = |q'|^2, p = q . q', z = minus the inner product of the rows across V. *)
Section Scalars.
Variables (A B p z s : R).
Hypotheses (A0 : 0 <= A) (B0 : 0 <= B) (As : A <= s) (Bs : B <= s) (S1 : s <= 1).
Hypotheses (P : p * p <= A * B) (Z : z * z <= (1 - A) * (1 - B)).

Lemma wide : A + B + 2 * (z * p) - 2 * (p * p) <= (1 + s) ^ 2 / 2.
Proof.
  assert (0 <= (z - 2 * p) * (z - 2 * p)) by apply Rle_0_sqr.
  assert (0 <= (s - A) * (1 + B)) by (apply Rmult_le_pos; lra).
  assert (0 <= (1 + s) * (s - B)) by (apply Rmult_le_pos; lra). lra.
Qed.

(* With |p| = sqrt(A B), or A, B <= 1/3, where more of p is worse. *)
Lemma narrow : (p * p = A * B \/ s <= 1 / 3) -> A + B + 2 * (z * p) - 2 * (p * p) <= 2 * (A + B) - (A + B) ^ 2.
Proof.
  intros H. set (g := sqrt (A * B)). set (Y := sqrt ((1 - A) * (1 - B))).
  assert (AB : 0 <= A * B) by (apply Rmult_le_pos; lra).
  assert (CD : 0 <= (1 - A) * (1 - B)) by (apply Rmult_le_pos; lra).
  assert (G : g * g = A * B) by now apply sqrt_sqrt.
  assert (YY : Y * Y = (1 - A) * (1 - B)) by now apply sqrt_sqrt.
  assert (G0 : 0 <= g) by apply sqrt_pos. assert (Y0 : 0 <= Y) by apply sqrt_pos.
  assert (YG : 2 * (Y * g) <= A * (1 - A) + B * (1 - B)).
  { apply square_le.
    - assert (0 <= A * (1 - A)) by (apply Rmult_le_pos; lra).
      assert (0 <= B * (1 - B)) by (apply Rmult_le_pos; lra). lra.
    - assert (0 <= (A * (1 - A) - B * (1 - B)) * (A * (1 - A) - B * (1 - B))) by apply Rle_0_sqr.
      replace (2 * (Y * g) * (2 * (Y * g))) with (4 * ((Y * Y) * (g * g))) by ring. rewrite YY, G. lra. }
  assert (Hp : Rabs p <= g). { apply square_le; trivial. rewrite <- Rabs_mult, Rabs_right by (apply Rle_ge, Rle_0_sqr). lra. }
  assert (Hz : Rabs z <= Y). { apply square_le; trivial. rewrite <- Rabs_mult, Rabs_right by (apply Rle_ge, Rle_0_sqr). lra. }
  assert (zp : z * p <= Y * Rabs p).
  { apply Rle_trans with (Rabs (z * p)); [apply Rle_abs|]. rewrite Rabs_mult. apply Rmult_le_compat_r; trivial. apply Rabs_pos. }
  assert (pp : p * p = Rabs p * Rabs p) by (rewrite <- Rabs_mult, Rabs_right; [ring | apply Rle_ge, Rle_0_sqr]).
  destruct H as [E|T].
  - assert (Y * Rabs p <= Y * g) by (apply Rmult_le_compat_l; trivial). nra.
  - assert (g <= 1 / 3) by (apply square_le; nra). assert (2 / 3 <= Y) by (apply square_le; nra).
    assert (0 <= (g - Rabs p) * (Y - (g + Rabs p))) by (apply Rmult_le_pos; lra). nra.
Qed.
End Scalars.

Section Products.
Variables (d K : nat) (V : nat -> vector) (x x' : vector) (l l' s : R).
Hypothesis directions : orthonormal d K V.
Hypotheses (X : squared d x <= 1) (X' : squared d x' <= 1) (L : 0 <= l <= 1) (L' : 0 <= l' <= 1) (S1 : s <= 1).
Definition product (l : R) (x : vector) : vector := fun k => l * dot d x (V k).
Hypotheses (C : squared K (product l x) <= s) (C' : squared K (product l' x') <= s).

Definition change := frobenius d K (difference (outer x (product l x)) (outer x' (product l' x'))).

Lemma dot_products : dot K (product l x) (product l' x') = l * l' * sum K (fun k => dot d x (V k) * dot d x' (V k)).
Proof. unfold dot at 1, product. rewrite <- sum_times. apply sum_ext. intros. ring. Qed.

(* What is left across V is at most as long as 1 - |q|^2. *)
Lemma short y l0 : squared d y <= 1 -> 0 <= l0 <= 1 -> squared d (across d K V y) <= 1 - squared K (product l0 y).
Proof.
  intros Y L0. rewrite squared_across by assumption.
  assert (squared K (product l0 y) <= sum K (fun t => dot d y (V t) ^ 2)); [|lra].
  unfold squared, dot at 1, product. apply sum_le. intros i _.
  replace (l0 * dot d y (V i) * (l0 * dot d y (V i))) with ((l0 * l0) * (dot d y (V i) ^ 2)) by ring.
  assert (l0 * l0 <= 1) by nra. assert (0 <= dot d y (V i) ^ 2) by apply pow2_ge_0. nra.
Qed.

Lemma reduced : exists A B p z, 0 <= A /\ 0 <= B /\ A <= s /\ B <= s /\ p * p <= A * B /\
  z * z <= (1 - A) * (1 - B) /\ (K = 1%nat -> p * p = A * B) /\ change <= A + B + 2 * (z * p) - 2 * (p * p).
Proof.
  exists (squared K (product l x)), (squared K (product l' x')), (dot K (product l x) (product l' x')),
    (- dot d (across d K V x) (across d K V x')).
  repeat split; trivial; try apply squared_nonneg; [apply cauchy_schwarz | | | ].
  - pose proof (cauchy_schwarz d (across d K V x) (across d K V x')).
    pose proof (short x l X L). pose proof (short x' l' X' L').
    pose proof (squared_nonneg d (across d K V x)). pose proof (squared_nonneg d (across d K V x')).
    apply Rle_trans with (squared d (across d K V x) * squared d (across d K V x')); [lra|].
    apply Rmult_le_compat; trivial.
  - intros ->. unfold squared, dot. simpl. ring.
  - unfold change. rewrite frobenius_difference, (dot_of_across d K V directions), dot_products.
    set (t := sum K _). set (A := squared K (product l x)) in *. set (B := squared K (product l' x')) in *.
    assert (0 <= A) by apply squared_nonneg. assert (0 <= B) by apply squared_nonneg.
    pose proof (squared_nonneg d x). pose proof (squared_nonneg d x').
    assert (squared d x * A <= A) by nra. assert (squared d x' * B <= B) by nra.
    assert (0 <= l * l' <= 1) by nra. set (k := l * l') in *.
    assert (0 <= t * t) by apply Rle_0_sqr.
    assert (k * k * (t * t) <= k * (t * t)) by (apply Rmult_le_compat_r; nra). nra.
Qed.

End Products.
