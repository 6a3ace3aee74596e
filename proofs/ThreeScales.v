(* What one person costs a release of a second moment, sums and counts, with noise of the three scales s1, s2, s3:
   python/dpgep/privacy/noise.py, `moment_mu`. Rows are in the unit ball; w1, w2, w3 are 1/s1^2, 1/s2^2, 1/s3^2, of
   which each is 0 where a block is not released. Every bound is attained. *)

From Proofs Require Import Vectors.

(* Minus the inner product of the worst two rows of one group. *)
Definition worst_t (w1 w2 : R) : R := Rmin 1 (w2 / (2 * w1)).

(* constants: what `moment_mu` returns, squared; the squared norm of values cut to r and d marks of +-a, `mark_of` *)
Definition same_group (w1 w2 : R) : R := 2 * (1 - worst_t w1 w2 ^ 2) * w1 + 2 * (1 + worst_t w1 w2) * w2.
Definition other_group (w1 w2 w3 : R) : R := 2 * (w1 + w2 + w3).
Definition one_row (w1 w2 w3 : R) : R := w1 + w2 + w3.
Definition with_marks (r a d : R) : R := r ^ 2 + d * a ^ 2.
(* end *)

Section Costs.
Variables (d : nat) (w1 w2 w3 : R) (x x' : vector).
Hypotheses (W1 : 0 < w1) (W2 : 0 <= w2) (W3 : 0 <= w3) (X : squared d x <= 1) (X' : squared d x' <= 1).

(* Two rows in one group: the sum moves by x - x', no count moves. *)
Theorem replaced_in_a_group :
  w1 * frobenius d d (difference (outer x x) (outer x' x')) + w2 * squared d (minus x x') <= same_group w1 w2.
Proof.
  rewrite frobenius_difference, squared_minus.
  pose proof (squared_nonneg d x). pose proof (squared_nonneg d x').
  pose proof (cauchy_schwarz d x x') as C.
  set (a := squared d x) in *. set (b := squared d x') in *. set (u := dot d x x') in *.
  assert (U : u * u <= 1) by nra.
  (* both norms at most one: the first step of the proof *)
  apply Rle_trans with (w1 * (2 - 2 * (u * u)) + w2 * (2 - 2 * u)).
  { assert (a * a + b * b <= 2) by nra.
    assert (w1 * (a * a + b * b - 2 * (u * u)) <= w1 * (2 - 2 * (u * u))) by (apply Rmult_le_compat_l; lra).
    assert (w2 * (a + b - 2 * u) <= w2 * (2 - 2 * u)) by (apply Rmult_le_compat_l; lra). lra. }
  (* a parabola in t = -u *)
  unfold same_group, worst_t. set (v := w2 / (2 * w1)).
  assert (V : w2 = 2 * w1 * v) by (unfold v; field; lra).
  destruct (Rle_lt_dec 1 v) as [L|L].
  - rewrite Rmin_left by lra. assert (-1 <= u) by nra.
    assert (0 <= w1 * (1 + u)) by nra.
    assert (0 <= w1 * (1 + u) * (2 * v - 1 + u)); [|rewrite V; nra].
    apply Rmult_le_pos; lra.
  - rewrite Rmin_right by lra. rewrite V.
    assert (0 <= w1 * ((u + v) * (u + v))); [|nra]. apply Rmult_le_pos; [lra|]. apply Rle_0_sqr.
Qed.

(* Two rows in two groups: two columns of sums move, and two counts. *)
Theorem replaced_between_groups :
  w1 * frobenius d d (difference (outer x x) (outer x' x')) + w2 * (squared d x + squared d x') + w3 * 2
  <= other_group w1 w2 w3.
Proof.
  rewrite frobenius_difference. unfold other_group.
  pose proof (squared_nonneg d x). pose proof (squared_nonneg d x').
  set (a := squared d x) in *. set (b := squared d x') in *. set (u := dot d x x') in *.
  assert (a * a + b * b - 2 * (u * u) <= 2) by nra.
  assert (w1 * (a * a + b * b - 2 * (u * u)) <= w1 * 2) by (apply Rmult_le_compat_l; lra).
  assert (w2 * (a + b) <= w2 * 2) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* The same where each group has a second moment of its own. *)
Theorem replaced_between_second_moments :
  w1 * (frobenius d d (outer x x) + frobenius d d (outer x' x')) + w2 * (squared d x + squared d x') + w3 * 2
  <= other_group w1 w2 w3.
Proof.
  rewrite !frobenius_outer. unfold other_group.
  pose proof (squared_nonneg d x). pose proof (squared_nonneg d x').
  set (a := squared d x) in *. set (b := squared d x') in *.
  assert (a * a + b * b <= 2) by nra.
  assert (w1 * (a * a + b * b) <= w1 * 2) by (apply Rmult_le_compat_l; lra).
  assert (w2 * (a + b) <= w2 * 2) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* Added, removed, or leaving all groups. *)
Theorem added : w1 * frobenius d d (outer x x) + w2 * squared d x + w3 * 1 <= one_row w1 w2 w3.
Proof.
  rewrite frobenius_outer. unfold one_row. pose proof (squared_nonneg d x). set (a := squared d x) in *.
  assert (a * a <= 1) by nra.
  assert (w1 * (a * a) <= w1 * 1) by (apply Rmult_le_compat_l; lra).
  assert (w2 * a <= w2 * 1) by (apply Rmult_le_compat_l; lra). lra.
Qed.
End Costs.

(* Holes in columns, each by itself: a row of values is followed by marks, and all of the above holds of both. *)
Theorem marked d x (present : nat -> bool) r a : squared d x <= r ^ 2 ->
  squared d x + squared d (fun j => if present j then a else - a) <= with_marks r a (INR d).
Proof.
  intros H. unfold with_marks.
  assert (squared d (fun j => if present j then a else - a) <= a ^ 2 * INR d); [|lra].
  apply sum_le_times. intros j _. destruct (present j); lra.
Qed.

(* Attained, in two columns: by unit rows (1, 0) and (-t, sqrt(1 - t^2)), by (1, 0) and (0, 1), and by (1, 0). *)
Definition unit (a b : R) : vector := fun i => match i with O => a | _ => b end.

Lemma in_two_columns a b a' b' : dot 2 (unit a b) (unit a' b') = a * a' + b * b'.
Proof. unfold dot. simpl. ring. Qed.

Theorem same_group_is_attained w1 w2 (W1 : 0 < w1) (W2 : 0 <= w2) : exists x x',
  squared 2 x <= 1 /\ squared 2 x' <= 1 /\
  w1 * frobenius 2 2 (difference (outer x x) (outer x' x')) + w2 * squared 2 (minus x x') = same_group w1 w2.
Proof.
  unfold same_group. set (t := worst_t w1 w2).
  assert (T1 : t <= 1) by apply Rmin_l.
  assert (T0 : 0 <= t).
  { apply Rmin_glb; [lra|]. apply Rmult_le_pos; [lra|]. apply Rlt_le, Rinv_0_lt_compat. lra. }
  exists (unit 1 0), (unit (- t) (sqrt (1 - t * t))).
  rewrite frobenius_difference, squared_minus. unfold squared. rewrite !in_two_columns, sqrt_sqrt by nra.
  repeat split; first [lra | field].
Qed.

Theorem other_group_is_attained w1 w2 w3 : exists x x', squared 2 x <= 1 /\ squared 2 x' <= 1 /\
  w1 * frobenius 2 2 (difference (outer x x) (outer x' x')) + w2 * (squared 2 x + squared 2 x') + w3 * 2
  = other_group w1 w2 w3.
Proof.
  exists (unit 1 0), (unit 0 1). rewrite frobenius_difference. unfold squared, other_group. rewrite !in_two_columns.
  repeat split; first [lra | field].
Qed.

Theorem one_row_is_attained w1 w2 w3 : exists x, squared 2 x <= 1 /\
  w1 * frobenius 2 2 (outer x x) + w2 * squared 2 x + w3 * 1 = one_row w1 w2 w3.
Proof.
  exists (unit 1 0). rewrite frobenius_outer. unfold squared, one_row. rewrite !in_two_columns.
  repeat split; first [lra | field].
Qed.
