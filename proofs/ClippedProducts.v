(* Sums of clipped products: python/dpgep/privacy/clipped_products.py. Rows x are in the unit ball, V has K orthonormal
   directions, a = V x, and q = l a with 0 <= l <= 1 and |q|^2 <= s is the product clipped to the norm c, s = c^2. *)

From Proofs Require Import Vectors Products.

(* constants: squared changes of the sum of x q^T; `product_sensitivity`, squared, times s *)
Definition one_direction_narrow (s : R) : R := 4 * s * (1 - s).
Definition one_direction_wide : R := 1.
Definition several_directions_narrow (s : R) : R := 4 * s * (1 - s).
Definition several_directions_wide (s : R) : R := (1 + s) ^ 2 / 2.
Definition located_replaced (s m : R) : R := 4 * s * (1 + m ^ 2).
Definition located_added (s m : R) : R := s * (1 + m ^ 2).
(* `views_sensitivity`, squared *)
Definition views_replaced : R := 4.
Definition views_added : R := 1.
(* `ClippedMoment`, in units of thresholds *)
Definition moment_replaced : R := 2.
Definition moment_of_one_replaced : R := 1.
Definition moment_of_views_replaced : R := 4.
Definition moment_added : R := 1.
(* end *)

Section Products.
Variables (d K : nat) (V : nat -> vector) (x x' : vector) (l l' s : R).
Hypothesis directions : orthonormal d K V.
Hypotheses (X : squared d x <= 1) (X' : squared d x' <= 1) (L : 0 <= l <= 1) (L' : 0 <= l' <= 1) (S1 : s <= 1).
Hypotheses (C : squared K (product d V l x) <= s) (C' : squared K (product d V l' x') <= s).
Local Notation change := (Products.change d K V x x' l l').

Theorem one_direction : K = 1%nat ->
  change <= one_direction_wide /\ (s <= 1 / 2 -> change <= one_direction_narrow s).
Proof.
  intros E. destruct (reduced d K V x x' l l' s directions X X' L L' S1 C C') as (A & B & p & z & A0 & B0 & As & Bs & P & Z & One & H).
  pose proof (narrow A B p z s A0 B0 As Bs S1 P Z (or_introl (One E))) as N.
  assert (0 <= (A + B - 1) ^ 2) by apply pow2_ge_0.
  unfold one_direction_wide, one_direction_narrow. split; [lra|]. intros.
  assert (0 <= (2 * s - (A + B)) * (2 - (2 * s + (A + B)))) by (apply Rmult_le_pos; lra). lra.
Qed.

Theorem several_directions :
  change <= several_directions_wide s /\ (s <= 1 / 3 -> change <= several_directions_narrow s).
Proof.
  destruct (reduced d K V x x' l l' s directions X X' L L' S1 C C') as (A & B & p & z & A0 & B0 & As & Bs & P & Z & _ & H).
  unfold several_directions_wide, several_directions_narrow. split.
  - pose proof (wide A B p z s A0 B0 As Bs Z). lra.
  - intros T. pose proof (narrow A B p z s A0 B0 As Bs S1 P Z (or_intror T)).
    assert (0 <= (2 * s - (A + B)) * (2 - (2 * s + (A + B)))) by (apply Rmult_le_pos; lra). lra.
Qed.
End Products.

(* About a mean: rows are followed by the constant m, and q is any vector of a norm of at most c. *)
Theorem located d e x x' q q' s m :
  squared d x <= 1 -> squared d x' <= 1 -> squared e q <= s -> squared e q' <= s ->
  let end_of (x : vector) : vector := fun i => if (i <? d)%nat then x i else m in
  frobenius (S d) e (difference (outer (end_of x) q) (outer (end_of x') q')) <= located_replaced s m /\
  frobenius (S d) e (outer (end_of x) q) <= located_added s m.
Proof.
  intros X X' Q Q' end_of.
  assert (N : forall x q, squared d x <= 1 -> squared e q <= s -> frobenius (S d) e (outer (end_of x) q) <= located_added s m).
  { intros y r Y H. rewrite frobenius_outer. unfold located_added.
    assert (squared (S d) (end_of y) <= 1 + m ^ 2).
    { unfold squared, dot. cbn [sum]. unfold end_of at 3 4. rewrite Nat.ltb_irrefl.
      rewrite (sum_ext d _ (fun i => y i * y i)); [unfold squared, dot in Y; lra|].
      intros i Hi. unfold end_of. apply Nat.ltb_lt in Hi. now rewrite Hi. }
    pose proof (squared_nonneg (S d) (end_of y)). pose proof (squared_nonneg e r).
    assert (squared (S d) (end_of y) * squared e r <= (1 + m ^ 2) * s) by (apply Rmult_le_compat; lra). lra. }
  split; [|now apply N]. unfold located_replaced. pose proof (N x q X Q). pose proof (N x' q' X' Q').
  pose proof (frobenius_difference_le (S d) e (outer (end_of x) q) (outer (end_of x') q')). unfold located_added in *. lra.
Qed.

(* Two views x and y, each times a product of norm at most 1: in units of thresholds. *)
Theorem two_views d e f g x y q r x' y' q' r' :
  squared d x + squared e y <= 1 -> squared d x' + squared e y' <= 1 ->
  squared f q <= 1 -> squared g r <= 1 -> squared f q' <= 1 -> squared g r' <= 1 ->
  frobenius d f (difference (outer x q) (outer x' q')) + frobenius e g (difference (outer y r) (outer y' r'))
    <= views_replaced /\
  frobenius d f (outer x q) + frobenius e g (outer y r) <= views_added.
Proof.
  intros X X' Q R Q' R'. unfold views_replaced, views_added.
  assert (N : forall n m u v, squared m v <= 1 -> frobenius n m (outer u v) <= squared n u).
  { intros n m u v H. rewrite frobenius_outer. pose proof (squared_nonneg n u). nra. }
  pose proof (N d f x q Q). pose proof (N e g y r R). pose proof (N d f x' q' Q'). pose proof (N e g y' r' R').
  pose proof (frobenius_difference_le d f (outer x q) (outer x' q')).
  pose proof (frobenius_difference_le e g (outer y r) (outer y' r')). split; lra.
Qed.

(* The second moment of products q, and of p r^T of two views. *)
Theorem second_moment d e p q r p' q' r' :
  squared d p <= 1 -> squared e r <= 1 -> squared d p' <= 1 -> squared e r' <= 1 -> squared d q <= 1 -> squared d q' <= 1 ->
  frobenius d d (difference (outer q q) (outer q' q')) <= moment_replaced /\
  frobenius d e (difference (outer p r) (outer p' r')) <= moment_of_views_replaced /\
  frobenius d e (outer p r) <= moment_added.
Proof.
  intros P R P' R' Q Q'. unfold moment_replaced, moment_of_views_replaced, moment_added.
  pose proof (frobenius_difference_le d e (outer p r) (outer p' r')) as D. rewrite !frobenius_outer in *.
  pose proof (squared_nonneg d p). pose proof (squared_nonneg e r). pose proof (squared_nonneg d p'). pose proof (squared_nonneg e r').
  assert (squared d p * squared e r <= 1) by nra. assert (squared d p' * squared e r' <= 1) by nra. repeat split; try lra.
  rewrite frobenius_difference. pose proof (squared_nonneg d q). pose proof (squared_nonneg d q').
  assert (0 <= dot d q q' * dot d q q') by apply Rle_0_sqr. nra.
Qed.

(* Of one direction it is a square: a replaced one cannot turn. *)
Theorem second_moment_of_one q q' : squared 1 q <= 1 -> squared 1 q' <= 1 ->
  frobenius 1 1 (difference (outer q q) (outer q' q')) <= moment_of_one_replaced.
Proof.
  unfold frobenius, squared, dot, difference, outer, moment_of_one_replaced. simpl.
  pose proof (Rle_0_sqr (q 0%nat)) as Q. pose proof (Rle_0_sqr (q' 0%nat)) as Q'. unfold Rsqr in Q, Q'.
  set (a := q 0%nat * q 0%nat) in *. set (b := q' 0%nat * q' 0%nat) in *. intros A B. nra.
Qed.

(* On a grid: answers that are within h of their exact ones move by at most 2 h more. *)
Theorem on_a_grid d f f' g g' D h : 0 <= D -> 0 <= h ->
  squared d (minus f f') <= D * D -> squared d (minus g f) <= h * h -> squared d (minus f' g') <= h * h ->
  squared d (minus g g') <= (D + 2 * h) * (D + 2 * h).
Proof.
  intros D0 h0 F G G'.
  assert (T : forall u v a b, 0 <= a -> 0 <= b -> squared d u <= a * a -> squared d v <= b * b ->
    squared d (fun i => u i + v i) <= (a + b) * (a + b)).
  { intros u v a b Ha Hb U W. pose proof (dot_le d u v a b U W Ha Hb).
    replace (squared d (fun i => u i + v i)) with (squared d u + squared d v + 2 * dot d u v); [lra|].
    unfold squared, dot. rewrite <- sum_times, <- !sum_plus. apply sum_ext. intros. ring. }
  replace (squared d (minus g g')) with (squared d (fun i => (minus g f i + minus f f' i) + minus f' g' i)).
  - replace (D + 2 * h) with ((h + D) + h) by ring. apply T; trivial; [lra|]. apply T; trivial.
  - apply sum_ext. intros. unfold minus. ring.
Qed.

(* Attained. Rows are (sqrt s, sqrt(1 - s)), with the second entry negated, or turned by an angle in two directions. *)
Definition entries (a b c : R) : vector := fun i => match i with O => a | S O => b | _ => c end.

Theorem one_direction_is_attained s : 0 <= s <= 1 -> exists x x' q q',
  squared 2 x = 1 /\ squared 2 x' = 1 /\ q = (fun _ => x 0%nat) /\ q' = (fun _ => x' 0%nat) /\ squared 1 q = s /\ squared 1 q' = s /\
  frobenius 2 1 (difference (outer x q) (outer x' q')) = one_direction_narrow s /\
  (s = 1 / 2 -> one_direction_narrow s = one_direction_wide).
Proof.
  intros H. set (u := sqrt s). set (v := sqrt (1 - s)).
  assert (u * u = s) by (apply sqrt_sqrt; lra). assert (v * v = 1 - s) by (apply sqrt_sqrt; lra).
  exists (entries u v 0), (entries u (- v) 0), (fun _ => u), (fun _ => u).
  rewrite frobenius_difference. unfold squared, dot, one_direction_narrow, one_direction_wide. simpl.
  repeat split; try lra.
  - replace ((0 + u * u + v * v) * (0 + u * u)) with ((u * u + v * v) * (u * u)) by ring. nra.
  - intros ->. lra.
Qed.

Theorem several_directions_are_attained s : 1 / 3 <= s <= 1 -> exists x x',
  squared 3 x = 1 /\ squared 3 x' = 1 /\ squared 2 x = s /\ squared 2 x' = s /\
  frobenius 3 2 (difference (outer x x) (outer x' x')) = several_directions_wide s /\
  (s = 1 / 3 -> several_directions_wide s = several_directions_narrow s).
Proof.
  intros H. set (u := sqrt s). set (v := sqrt (1 - s)). set (g := (1 - s) / (2 * s)). set (h := sqrt (1 - g * g)).
  assert (U : u * u = s) by (apply sqrt_sqrt; lra). assert (V : v * v = 1 - s) by (apply sqrt_sqrt; lra).
  assert (G : s * g = (1 - s) / 2) by (unfold g; field; lra).
  assert (0 <= g <= 1). { split; apply Rmult_le_reg_l with s; lra. }
  assert (HH : h * h = 1 - g * g) by (apply sqrt_sqrt; nra).
  exists (entries u 0 v), (entries (u * g) (u * h) (- v)).
  assert (E : u * g * (u * g) + u * h * (u * h) = s).
  { replace (_ + _) with (u * u * (g * g + h * h)) by ring. rewrite U, HH. ring. }
  rewrite frobenius_difference. unfold squared, dot, several_directions_wide, several_directions_narrow. simpl.
  repeat split; try lra.
  - replace (0 + u * (u * g) + 0 * (u * h)) with (u * u * g) by ring. rewrite U, G.
    replace (0 + u * g * (u * g) + u * h * (u * h)) with s by lra.
    replace (0 + u * u + 0 * 0) with s by lra. nra.
  - intros ->. lra.
Qed.

Theorem moments_and_views_are_attained :
  let one : vector := fun _ => 1 in let other : vector := fun _ => -1 in let zero : vector := fun _ => 0 in
  frobenius 2 2 (difference (outer (entries 1 0 0) (entries 1 0 0)) (outer (entries 0 1 0) (entries 0 1 0))) = moment_replaced /\
  frobenius 1 1 (difference (outer one one) (outer zero zero)) = moment_of_one_replaced /\
  frobenius 1 1 (difference (outer one one) (outer other one)) = moment_of_views_replaced /\
  frobenius 1 1 (difference (outer one one) (outer one other)) + frobenius 1 1 (difference (outer zero one) (outer zero one))
    = views_replaced /\
  frobenius 1 1 (outer one one) = views_added /\ frobenius 1 1 (outer one one) = moment_added /\
  forall s m, 0 <= s -> frobenius 2 1 (outer (entries 1 m 0) (fun _ => sqrt s)) = located_added s m.
Proof.
  simpl. unfold frobenius, squared, dot, difference, outer, entries, moment_replaced, moment_of_one_replaced,
    moment_of_views_replaced, views_replaced, views_added, moment_added, located_added. simpl. repeat split; try lra.
  intros s m H. pose proof (sqrt_sqrt s H). set (r := sqrt s) in *. nra.
Qed.
